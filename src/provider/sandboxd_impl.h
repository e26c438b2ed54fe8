/* What the files of the sandboxd provider share; nobody else includes this. */
#ifndef PROVIDER_SANDBOXD_IMPL_H
#define PROVIDER_SANDBOXD_IMPL_H

#include <jansson.h>

#include "base/list.h"
#include "net/httpc.h"
#include "provider/sandboxd.h"
#include "provider/shellfs.h"

#define SANDBOXD_STOP_MS 5000
#define SANDBOXD_SLACK_MS 10000 /* of an answer behind a command's limit */
#define SANDBOXD_OUTPUT (10u << 20)
#define SANDBOXD_PARTIAL 65536
/* 10 MiB of output of which every byte is escaped as \u00XX, and the rest. */
#define SANDBOXD_RUN_BODY (64u << 20)
#define SANDBOXD_LIST_BODY (64u << 20)
#define SANDBOXD_BODY (4u << 20)

struct provider {
	struct loop *loop;
	struct httpc *http;
	char *prefix; /* of each path; "" */
	char *token, *session_name, *runtime, *tenant;
	char **env;
	uint32_t request_ms, opening_ms;
	void (*waiting)(void *ctx);
	void *ctx;
	bool ours, ours_known;
	struct list boxes; /* box.link */
	struct list asks;  /* ask.link, that no box owns */
};

struct box {
	struct list link;
	struct provider *p;
	char *id, *token; /* NULL until opened */
	char *runtime;    /* as it was asked for; NULL: any */
	char *work_dir;
	uint32_t ceiling_ms;
	uint64_t read_max;
	bool native_files, native_writes, native_realpath;
	bool dead;
	struct garret_error why; /* with dead */

	char *birth; /* when the work directory was made; NULL: the session can't tell */
	bool lost;   /* what has its name now, if anything, isn't it */

	struct opening *opening;
	struct renewal *renewal; /* of the token; NULL: none is under way */
	box_died_fn died;
	void *died_ctx;
	struct loop_later died_later;

	struct list runs;  /* box_run.link */
	struct list files; /* box_file.link */
	struct list asks;
	struct shellfs *shellfs;
};

void sandboxd_open(struct provider *p, const struct box_spec *spec, box_opened_fn done, void *ctx);
/* With all that goes on in it. */
void sandboxd_box_free(struct box *b);
/* The body of POST /sessions: attach, else reuse of a name, else a new one (id NULL). */
void sandboxd_put_session(struct strbuf *out, const struct provider *p, const char *id,
			  const char *runtime, bool attach);
/* Its answer 200: the id (asked: it must be this one; NULL: any) and the token; free() both. */
int sandboxd_take_session(const struct strbuf *body, const char *asked, char **ret_id,
			  char **ret_token, struct garret_error *err);
/* Is that 409 about another client that is opening the session now? */
bool sandboxd_is_being_opened(const struct strbuf *body);
#define SANDBOXD_AGAIN_MS 200 /* between two tries then */

/* ---- a token that the service no longer takes (sandboxd_renew.c) ---- */

struct token_wait {
	struct box *box; /* NULL: it has never waited */
	struct list link;
	struct loop_later later;
	struct garret_error err;
	void (*done)(struct token_wait *w, const struct garret_error *err); /* NULL: ask again */
};
/*
 * The box's token `used` was answered 401, so the service did nothing: done is called, from
 * the loop, once there is another one, or when there is none to be had.
 */
void sandboxd_renew(struct box *b, const char *used, struct token_wait *w,
		    void (*done)(struct token_wait *w, const struct garret_error *err));
/* done isn't called any more.  Also of one that doesn't wait. */
void sandboxd_renew_leave(struct token_wait *w);
void sandboxd_renew_end(struct box *b); /* the box is freed */

/*
 * A command that says which directory the session works in: when that was made, where the
 * file system and the programs there can tell, and its path.
 */
#define SANDBOXD_WHERE "TZ=UTC0 stat -c %w . 2>/dev/null || echo -; pwd -P"
/* Out of what it printed, or what only `pwd -P` did; -GONE when there is no path.  free() both. */
int sandboxd_take_where(const char *text, size_t n, char **ret_birth, char **ret_path);

/* ---- one request (sandboxd_ask.c) ---- */

struct ask;
/*
 * An answer of any status, or err: then status is 0, or 401 when the service has done nothing
 * because of our token.  The ask is gone.
 */
typedef void (*answer_fn)(void *ctx, int status, struct strbuf *body,
			  const struct garret_error *err);

struct ask_spec {
	const char *method; /* a literal */
	const char *path;
	const char *token;   /* NULL: none */
	bool session;        /* with the box's token instead, which may be renewed on the way */
	struct strbuf *json; /* a body, which is taken; NULL: none */
	const void *raw;     /* or this one, which must stay until the end */
	size_t raw_bytes;
	uint32_t total_ms;
	size_t max_bytes; /* 0: SANDBOXD_BODY */
	bool own_ctx;     /* ctx is freed when the request is given up */
};
/* box: its close() gives the request up; NULL: it belongs to the provider. */
struct ask *sandboxd_ask(struct provider *p, struct box *box, const struct ask_spec *spec,
			 answer_fn fn, void *ctx);
void ask_cancel(struct ask *a);

/* A JSON object or array out of a body, or NULL and PROTOCOL naming `what`. */
json_t *sandboxd_parse(const struct strbuf *body, const char *what, struct garret_error *err);
/* What a refusal says, without control characters and our tokens. */
void sandboxd_detail(const struct provider *p, const struct box *box, const char *body, size_t n,
		     char out[320]);
/* A status that isn't the wanted one, as an error; 404 and 410 only where they mean the session. */
void sandboxd_refused(const struct provider *p, const struct box *box, int status,
		      const struct strbuf *body, const char *what, bool session,
		      struct garret_error *err);
/* After GONE: the box is dead, its watcher is told. */
void sandboxd_gone(struct box *b, const struct garret_error *why);
/* "?path=..." and the like: percent-encoded. */
void sandboxd_escape(struct strbuf *out, const char *s);
/* "/sessions/ID" + tail, or with v1 "/v1/sessions/ID" + tail; free(). */
char *sandboxd_path(const struct box *b, bool v1, const char *tail);
/* Is s a header's value: printable ASCII without blanks? */
bool sandboxd_is_token(const char *s);

/* ---- commands (sandboxd_run.c, sandboxd_stream.c) ---- */

struct box_run {
	struct list link;
	struct box *box;
	uint8_t id[RUN_ID_BYTES];
	char hex[2 * RUN_ID_BYTES + 1];
	box_run_end_fn end; /* NULL: nobody listens any more */
	void (*news)(void *ctx);
	void *ctx;
	uint32_t timeout_ms;
	uint64_t output_limit;
	struct ask *ask;
	bool stopped, live;
	struct box_run_end answer; /* complete but for what is fetched as it was written */
	bool fetched[2];

	/* A live one, over a connection of its own. */
	const struct box_stream_events *stream; /* NULL: its output is collected */
	struct httpc_raw *raw;
	struct strbuf request;
	struct token_wait wait;
	char *token; /* it was sent with this one */
	bool *gone;
	bool open, input_ended, paused, again;
	struct strbuf out, in;       /* frames to the service, and from it */
	struct strbuf head[2];       /* collected */
	uint64_t total[2], acked[2]; /* of the output */
	uint64_t fed, taken;         /* of the input */
	struct loop_timer timer;
};

struct box_run *sandboxd_run(struct box *b, const struct box_run_spec *spec, box_run_end_fn end,
			     void *ctx, struct garret_error *err);
void sandboxd_stop(struct box_run *r, uint32_t grace_ms);
void sandboxd_state(const struct box_run *r, struct box_run_state *ret);
void sandboxd_leave(struct box_run *r);
struct box_run *sandboxd_stream(struct box *b, const struct box_stream_spec *spec,
				const struct box_stream_events *events, void *ctx,
				struct garret_error *err);
void sandboxd_input(struct box_run *r, const void *data, size_t n);
void sandboxd_ack(struct box_run *r, int stream, uint64_t offset);
void sandboxd_winch(struct box_run *r, uint16_t rows, uint16_t columns);
void sandboxd_signal(struct box_run *r, int signo);
bool sandboxd_busy(const struct box_run *r);
/* argv and env as members of an object; -INVALID when they can't be JSON. */
int sandboxd_put_command(struct strbuf *out, const struct box *b, const char *const *argv,
			 const char *const *env, struct garret_error *err);
struct box_run *sandboxd_run_new(struct box *b, box_run_end_fn end, void *ctx);
void sandboxd_run_free(struct box_run *r);
void sandboxd_run_end(struct box_run *r, struct box_run_end *end); /* frees it */
void sandboxd_run_failed(struct box_run *r, const struct garret_error *err);
/* The same command, begun in a directory; free() the array, its words are borrowed. */
const char **sandboxd_in_directory(const char *cwd, const char *const *argv);
/* Begin a live run; used for streams and for commands with input. */
int sandboxd_live(struct box_run *r, const struct box_stream_spec *spec, struct garret_error *err);
void sandboxd_live_stop(struct box_run *r, uint32_t grace_ms);
/* All of them end: the session has. */
void sandboxd_runs_end(struct box *b, const struct garret_error *why);

/* Commands as a host for file operations. */
void sandboxd_shell_host(struct box *b, struct shell_host *ret);

/* ---- files (sandboxd_files.c and others) ---- */

struct box_file;
struct box_file *sandboxd_file(struct box *b, const struct file_request *rq,
			       const struct file_events *events, void *ctx,
			       struct garret_error *err);
size_t sandboxd_file_body(struct box_file *f, const void *data, size_t n);
void sandboxd_file_body_end(struct box_file *f);
int sandboxd_file_pipe(struct box_file *f, int *ret_fd, struct garret_error *err);
void sandboxd_file_pause(struct box_file *f, bool pause);
void sandboxd_file_leave(struct box_file *f);
void sandboxd_files_end(struct box *b, const struct garret_error *why);

#endif
