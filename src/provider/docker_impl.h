/* What the files of the Docker provider share; nobody else includes this. */
#ifndef PROVIDER_DOCKER_IMPL_H
#define PROVIDER_DOCKER_IMPL_H

#include "provider/docker.h"
#include "provider/docker_api.h"
#include "provider/docker_build.h"
#include "provider/init_box.h"
#include "provider/init_stream.h"
#include "provider/shellfs.h"

#define DOCKER_PREFIX "pydantic-ai-workspace-"
#define DOCKER_PREFIX_HEX 16
#define DOCKER_SESSION "sandboxd-"
#define LABEL_OWNER "io.garret.owner"
#define LABEL_WORKSPACE "io.garret.workspace"
#define LABEL_VERSION "io.garret.version"
#define LABEL_REACH "io.garret.reach" /* "init" or "exec": what it was made for */

#define INIT_PROGRAM "/.garret/init"
#define INIT_PARENT "/run/garret" /* a tmpfs */
#define INIT_DIR "/run/garret/init"
#define INIT_FOREIGN_DIR "/tmp/.garret-init" /* where nothing was prepared */

struct docker_pull;

struct provider {
	struct loop *loop;
	struct docker_api *api;
	struct docker_config config; /* its strings and lists are ours */
	struct strbuf init_tar;      /* empty: no init */
	struct docker_builder *builder;
	struct list boxes;
};

enum open_mode {
	OPEN_REF,   /* exactly that one */
	OPEN_NAMED, /* that name, made when there is none */
	OPEN_NEW,   /* made at once; one that is there by that name is ours */
	OPEN_ADOPT, /* by its mark */
};

struct box {
	struct init_box common; /* first: it is cast */
	struct list link;       /* provider.boxes */
	struct provider *p;
	char *name; /* of the container: the ref */
	char *id;   /* of the container, as soon as it is known */
	char *mark;
	char *work_dir; /* as it was asked for; then its real path */
	char *session;  /* spec.id */
	bool ours;      /* it has our labels */
	bool via_init;
	bool foreign; /* its init was put beside what it does */
	char reach[256];

	/* opening */
	enum open_mode mode;
	struct box_spec spec; /* what creating needs; its strings are ours */
	bool made;            /* by this open */
	bool no_init;         /* it was tried, and can't run */
	bool pulled;
	unsigned tries, reaches;
	struct docker_pull *pull;
	struct docker_build *build;
	char *image;
	struct docker_recipe recipe; /* name NULL: there is none */
	struct docker_call *call;
	struct docker_exec *step;
	struct loop_timer retry;
	struct loop_later later;
	struct strbuf said; /* by the step: errors of a helper */
	struct garret_error open_error;
	box_opened_fn opened;
	void *opened_ctx;

	/* open */
	struct init_stream *stream;
	struct docker_exec *wire; /* that carries it */
	bool wired;               /* the stream has it */
	struct garret_error wire_end;
	uint64_t cut_ms; /* since when there is none; 0: there is one */
	struct shellfs *fs;
	struct list execs; /* of commands without init */
	struct docker_call *watching;
	struct loop_timer rewatch;
	box_died_fn died;
	void *died_ctx;
	bool died_told, dead, closing;

	box_done_fn closed;
	void *closed_ctx;
};

int docker_random(void *buf, size_t n, struct garret_error *err);

/* docker_names.c */
bool docker_name_is_ours(const struct provider *p, const char *name); /* its shape */
char *docker_new_name(const struct provider *p, const char *id);
/* The body of the create call. */
void docker_create_body(const struct box *b, struct strbuf *out);
/* A member of a tar archive; its content and two empty blocks at the end are the caller's. */
void docker_tar_head(struct strbuf *out, const char *name, char type, unsigned mode, uint64_t size);
/* An archive with that program at INIT_PROGRAM. */
int docker_init_tar(const char *program, struct strbuf *ret, struct garret_error *err);

/* docker_open.c */
void docker_open(struct provider *p, const struct box_spec *spec, box_opened_fn done, void *ctx);
void docker_adopt(struct provider *p, const struct box_spec *spec, const char *mark,
		  box_opened_fn done, void *ctx);
void docker_opened(struct box *b);
void docker_open_failed(struct box *b, const struct garret_error *err);
void docker_open_fail(struct box *b, enum garret_code code, const char *text);
/* docker_make.c: what was decided to be made, and starting what is there */
void docker_make(struct box *b);
void docker_bring_up(struct box *b);
/* It was made with init, which doesn't run: make it again without, or fail. */
void docker_open_without_init(struct box *b, const struct garret_error *why);
void docker_look_again(struct box *b); /* in a moment: what is there is changing */
void docker_box_free(struct box *b);   /* and let go of the container */
struct docker_call *docker_box_ask(struct box *b, const char *method, const char *rest,
				   docker_fn fn);

/* docker_reach.c: the way in */
void docker_reach(struct box *b);
void docker_unreach(struct box *b); /* what goes on ends as gone */
void docker_watch_container(struct box *b);
void docker_box_dead(struct box *b);

/* docker_run.c, docker_live.c: commands as execs */
#define DOCKER_PID_FILE "/tmp/.pydantic-ai-run-"
/* Its first two members are those of init's box_run: either is found by them. */
struct exec_run {
	struct list link; /* box.execs */
	struct init_box *box;
	uint8_t id[RUN_ID_BYTES];
	char pid_file[sizeof(DOCKER_PID_FILE) + 2 * RUN_ID_BYTES];
	struct docker_exec *exec;
	struct strbuf head[2];
	uint64_t total[2], output_limit;
	bool started, timed_out, output_limited, stopped, over;
	bool unpaused; /* once */
	uint32_t timeout_ms;
	uint64_t start_us;
	struct loop_timer deadline, give_up;
	struct loop_later later;
	struct garret_error failed;

	/* input */
	bool input, input_ended, tty;
	struct strbuf in;
	uint64_t held, taken;

	/* live */
	const struct box_stream_events *stream;
	uint64_t acked[2];
	bool paused;

	void (*news)(void *ctx);
	box_run_end_fn end; /* NULL: nobody listens any more */
	void *ctx;

	char **argv, **env; /* for the second try of a paused container */
	char *cwd;
	uint16_t rows, columns;
};

void exec_run_stop(struct exec_run *r);
void exec_run_flush(struct exec_run *r);     /* of its input, what is taken now */
void exec_run_hold_back(struct exec_run *r); /* or not any more */
void exec_run_signal(struct exec_run *r, int signo);

struct box_run *docker_run(struct box *b, const struct box_run_spec *spec, box_run_end_fn end,
			   void *ctx, struct garret_error *err);
struct box_run *docker_stream(struct box *b, const struct box_stream_spec *spec,
			      const struct box_stream_events *events, void *ctx,
			      struct garret_error *err);
void docker_state(const struct box_run *r, struct box_run_state *ret);
void docker_stop(struct box_run *r, uint32_t grace_ms);
void docker_input(struct box_run *r, const void *data, size_t n);
void docker_ack(struct box_run *r, int stream, uint64_t offset);
void docker_winch(struct box_run *r, uint16_t rows, uint16_t columns);
void docker_signal(struct box_run *r, int signo);
bool docker_busy(const struct box_run *r);
void docker_leave(struct box_run *r);
void docker_runs(struct box *b, box_runs_fn done, void *ctx);
struct box_run *docker_attach(struct box *b, const uint8_t *id, void (*news)(void *ctx),
			      box_run_end_fn end, void *ctx, struct garret_error *err);
void docker_runs_end(struct box *b); /* the container is gone */

/* docker_kept.c */
void docker_kept(struct provider *p, bool sizes, box_kept_fn row, box_done_fn done, void *ctx);
void docker_forget(struct provider *p, const char *id, enum box_forget what, uint64_t used_ms,
		   box_done_fn done, void *ctx);
void docker_settle(struct provider *p);

/* docker_files.c */
void docker_files_begin(struct box *b);
struct box_file *docker_file(struct box *b, const struct file_request *rq,
			     const struct file_events *events, void *ctx, struct garret_error *err);
size_t docker_file_body(struct box_file *f, const void *data, size_t n);
void docker_file_body_end(struct box_file *f);
int docker_file_pipe(struct box_file *f, int *ret_fd, struct garret_error *err);
void docker_file_pause(struct box_file *f, bool pause);
void docker_file_leave(struct box_file *f);

/* docker_image.c */
typedef void (*docker_pulled_fn)(void *ctx, const struct garret_error *err);
/* How far it is, as text for people, now and then; fn as above. */
void docker_pull_tell(struct docker_pull *p, void (*tell)(void *ctx, const char *text), void *ctx);
struct docker_pull *docker_pull(struct docker_api *a, const char *image, docker_pulled_fn fn,
				void *ctx);
void docker_pull_leave(struct docker_pull *p);

#endif
