#include "fake_service.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/list.h"
#include "base/mem.h"
#include "base/time.h"
#include "net/json.h"

struct session {
	struct list link;
	char *id, *runtime, *tenant;
	uint64_t runs;
};

struct service {
	struct loop *loop;
	struct config config;
	struct runtime_entry runtime;
	struct list sessions, ops;
	unsigned left;
};

struct run_record {
	unsigned refs;
	struct run_summary summary;
	int code; /* of every byte; -1: read text; -2: lost */
	char *text[2];
};

/* One operation that is answered later; a run has a record or a refusal. */
struct run_wait {
	struct list link;
	struct service *service;
	struct loop_timer timer;
	open_done open;
	infos_done infos;
	plain_done plain;
	run_done run;
	void *ctx;
	char id[65];
	bool named;
	struct run_record *record;
	struct refusal no;
};

static struct session *session_find(struct service *s, const char *id)
{
	struct session *e;

	list_foreach (e, &s->sessions, link)
		if (!strcmp(e->id, id))
			return e;
	return NULL;
}

static void session_drop(struct session *e)
{
	list_remove(&e->link);
	free(e->id);
	free(e->runtime);
	free(e->tenant);
	free(e);
}

struct service *fake_service_new(struct loop *l)
{
	struct service *s = xnew(struct service);

	s->loop = l;
	list_init(&s->sessions);
	list_init(&s->ops);
	s->runtime = (struct runtime_entry){ .alias = (char *)"host",
					     .source = (char *)"host",
					     .description = (char *)"",
					     .cpus = -1,
					     .cpu_shares = CONFIG_NULL,
					     .pids_limit = CONFIG_NULL };
	s->config = (struct config){ .host = (char *)"127.0.0.1",
				     .runtimes = &s->runtime,
				     .n_runtimes = 1,
				     .default_runtime = (char *)"host",
				     .max_sessions = 20,
				     .max_open_sessions = CONFIG_NULL,
				     .max_sessions_per_tenant = CONFIG_NULL,
				     .evict_idle_after = CONFIG_NULL,
				     .workspace_ttl = CONFIG_NULL,
				     .container_ttl = CONFIG_NULL,
				     .sandbox_uid = CONFIG_NULL,
				     .idle_timeout = 1800,
				     .execute_timeout = 300,
				     .max_read_bytes = 8 << 20,
				     .cpus = -1,
				     .cpu_shares = CONFIG_NULL,
				     .pids_limit = 512,
				     .network_mode = (char *)"none",
				     .work_dir = (char *)"/workspace",
				     .max_connections = 256,
				     .max_connections_per_address = 0 };
	return s;
}

static void op_free(struct run_wait *w)
{
	loop_timer_clear(&w->timer);
	list_remove(&w->link);
	run_record_unref(w->record);
	free(w);
}

struct service *fake_service_free(struct service *s)
{
	struct session *e;
	struct run_wait *w;

	list_foreach (w, &s->ops, link)
		op_free(w);
	list_foreach (e, &s->sessions, link)
		session_drop(e);
	free(s);
	return NULL;
}

struct config *fake_service_config(struct service *s)
{
	return &s->config;
}

unsigned fake_service_left(const struct service *s)
{
	return s->left;
}

const struct config *service_config(const struct service *s)
{
	return &s->config;
}

bool service_ready(const struct service *s)
{
	return s->loop != NULL;
}

/* ---- tokens and counts ---- */

static enum auth who_is(struct service *s, const char *token, const char *session_id,
			struct caller *ret)
{
	if (!token)
		return AUTH_NONE;
	if (!strcmp(token, "service-token-for-tests"))
		return AUTH_SERVICE;
	ret->read_only = strstr(token, "-read-token-for-tests") != NULL;
	if (!strncmp(token, "acme-", 5))
		(void)snprintf(ret->tenant, sizeof(ret->tenant), "acme");
	if (ret->read_only || !strcmp(token, "acme-token-for-tests"))
		return AUTH_SERVICE;
	if (!session_id)
		return AUTH_NONE;
	if (!strncmp(token, "token-", 6) && !strcmp(token + 6, session_id))
		return session_find(s, session_id) ? AUTH_SESSION : AUTH_ENDED;
	return !strncmp(token, "ended-", 6) && !strcmp(token + 6, session_id) ? AUTH_ENDED
									      : AUTH_NONE;
}

enum auth service_authenticate(struct service *s, const char *token, const char *session_id,
			       struct caller *ret)
{
	*ret = (struct caller){ .auth = AUTH_NONE };
	ret->auth = who_is(s, token, session_id, ret);
	return ret->auth;
}

bool service_owns(const struct service *s, const char *tenant, const char *session_id)
{
	const struct session *e = session_find((struct service *)(uintptr_t)s, session_id);

	return e && e->tenant && !strcmp(e->tenant, tenant);
}

void service_token_add(struct service *s, const struct token_request *rq, token_done done,
		       void *ctx)
{
	const struct token_info info = { .name = rq->name,
					 .tenant = rq->tenant,
					 .read_only = rq->read_only,
					 .active = true,
					 .created_at = 1795971124.5,
					 .expires_at = rq->expires_in > 0
							       ? 1795971124.5 + rq->expires_in
							       : 0 };

	(void)s;
	done(ctx, &info, "grt_secret", &(struct refusal){ 0 });
}

void service_token_rotate(struct service *s, const char *name, double overlap, token_done done,
			  void *ctx)
{
	(void)s, (void)name, (void)overlap;
	done(ctx, NULL, NULL, &(struct refusal){ .status = 404, .detail = "No such token" });
}

void service_token_revoke(struct service *s, const char *name, token_done done, void *ctx)
{
	service_token_rotate(s, name, 0, done, ctx);
}

void service_tokens(struct service *s, void (*each)(void *ctx, const struct token_info *t),
		    void *ctx)
{
	(void)s;
	each(ctx, &(struct token_info){ .name = "ci", .read_only = true, .created_at = 1.5 });
}

void service_set_policy(struct service *s, const struct json_t *change, const char *by,
			policy_done done, void *ctx)
{
	static const struct json_errors fine = JSON_ERRORS_INIT;

	(void)s, (void)change, (void)by;
	done(ctx, &(struct refusal){ .status = 507, .detail = "no registry here" }, &fine);
}

bool service_has_session(struct service *s, const char *id)
{
	return session_find(s, id) != NULL;
}

struct service_counts service_counts(const struct service *s)
{
	struct service_counts n = { 0 };
	const struct session *e;

	list_foreach (e, &((struct service *)(uintptr_t)s)->sessions, link)
		n.open++;
	n.resident = n.open;
	return n;
}

/* ---- answering later ---- */

static struct session_info info_of(const struct session *e)
{
	return (struct session_info){ .id = e->id,
				      .runtime = e->runtime,
				      .tenant = e->tenant,
				      .alive = true,
				      .created_at = 1795971124.885182,
				      .last_activity = 1795971125.0,
				      .idle_seconds = 0.25 };
}

static void answer_infos(struct run_wait *w)
{
	struct session_info infos[64];
	struct session *e;
	size_t n = 0;

	list_foreach (e, &w->service->sessions, link)
		if (n < 64 && (!w->named || !strcmp(e->id, w->id)))
			infos[n++] = info_of(e);
	w->infos(w->ctx, infos, n);
}

static void on_due(struct loop_timer *t)
{
	struct run_wait *w = t->ctx;
	struct session *e = session_find(w->service, w->id);
	char token[80];

	if (w->infos) {
		answer_infos(w);
	} else if (w->open) {
		struct session_info info = { 0 };

		if (e)
			info = info_of(e);
		(void)snprintf(token, sizeof(token), "token-%s", w->id);
		w->open(w->ctx, w->no.status ? NULL : &info, w->no.status ? NULL : token,
			w->no.status ? &w->no : NULL);
	} else if (w->run) {
		w->run(w->ctx, w->record, w->record ? NULL : &w->no);
	} else {
		w->plain(w->ctx, &w->no);
	}
	op_free(w);
}

static struct run_wait *op_new(struct service *s, const char *id, void *ctx, uint64_t ms)
{
	struct run_wait *w = xnew(struct run_wait);

	w->service = s;
	w->ctx = ctx;
	(void)snprintf(w->id, sizeof(w->id), "%s", id ? id : "");
	w->named = id != NULL;
	list_append(&s->ops, &w->link);
	loop_timer_set(s->loop, &w->timer, now_ms() + ms, on_due, w);
	return w;
}

static void refuse(struct run_wait *w, int status, const char *reason, const char *text)
{
	w->no.status = status;
	w->no.reason = reason;
	(void)snprintf(w->no.detail, sizeof(w->no.detail), "%s", text);
}

void service_open(struct service *s, const struct open_request *req, open_done done, void *ctx)
{
	const char *id = req->session_id ? req->session_id : "s-0123456789abcdef";
	const char *runtime = req->runtime && *req->runtime ? req->runtime : "host";
	struct run_wait *w = op_new(s, id, ctx, 0);
	struct session *e = session_find(s, id);

	w->open = done;
	if (strcmp(runtime, "host")) {
		refuse(w, 400, NULL, "Unknown runtime");
	} else if (e && !req->reuse && !req->attach) {
		refuse(w, 409, "exists", "Session exists");
	} else if (!e && req->attach) {
		refuse(w, 404, NULL, "Nothing to attach to");
	} else if (!e) {
		e = xnew(struct session);
		e->id = xstrdup(id);
		e->runtime = xstrdup(runtime);
		e->tenant = req->tenant ? xstrdup(req->tenant) : NULL;
		list_append(&s->sessions, &e->link);
	}
}

void service_sessions(struct service *s, const char *id, bool usage, infos_done done, void *ctx)
{
	(void)usage;
	op_new(s, id, ctx, 0)->infos = done;
}

void service_close(struct service *s, const char *id, bool purge, plain_done done, void *ctx)
{
	struct session *e = session_find(s, id);

	(void)purge;
	op_new(s, id, ctx, 0)->plain = done;
	if (e)
		session_drop(e);
}

bool service_events(struct service *s, const char *id, uint64_t after,
		    void (*each)(void *ctx, const struct session_event *e), void *ctx,
		    uint64_t *ret_latest)
{
	struct session *e = session_find(s, id);

	if (!e)
		return false;
	for (uint64_t seq = after + 1; seq <= e->runs; seq++)
		each(ctx, &(struct session_event){ .seq = seq,
						   .at = 1795971124.5,
						   .op = "run",
						   .target = "echo",
						   .ok = true,
						   .detail = "exit 0",
						   .duration_ms = 1.26 });
	*ret_latest = e->runs;
	return true;
}

/* ---- what is kept of runs: nothing ---- */

uint64_t service_ended_generation(struct service *s, const char *token, const char *session_id)
{
	return 0;
}

uint64_t service_generation(struct service *s, const char *session_id)
{
	return session_find(s, session_id) ? 1 : 0;
}

bool service_has_ended_runs(struct service *s, const char *session_id)
{
	return false;
}

void service_runs(struct service *s, const struct run_scope *scope, size_t max,
		  void (*each)(void *ctx, const struct run_info *info), void *ctx)
{
	(void)ctx;
}

struct run_reader *service_run_reader(struct service *s, const struct run_scope *scope,
				      const char *run_id, void (*news)(void *ctx), void *ctx)
{
	return NULL;
}

void run_reader_info(const struct run_reader *r, struct run_info *ret)
{
	*ret = (struct run_info){ .exit_code = -1 };
}

long run_reader_bytes(struct run_reader *r, int stream, uint64_t offset, void *buf, size_t cap)
{
	return -1;
}

struct run_reader *run_reader_free(struct run_reader *r)
{
	return NULL;
}

struct run_input *service_run_input(struct service *s, const char *session_id, const char *run_id,
				    uint64_t offset, const void *data, size_t n, bool end,
				    run_input_done done, void *ctx)
{
	return NULL;
}

void run_input_leave(struct run_input *in)
{
	(void)in;
}

bool service_run_signal(struct service *s, const char *session_id, const char *run_id, int signo,
			struct refusal *no)
{
	no->status = 404;
	return false;
}

/* ---- runs ---- */

struct run_record *run_record_ref(struct run_record *r)
{
	r->refs++;
	return r;
}

struct run_record *run_record_unref(struct run_record *r)
{
	if (r && !--r->refs) {
		free(r->text[0]);
		free(r->text[1]);
		free(r);
	}
	return NULL;
}

const struct run_summary *run_record_summary(const struct run_record *r)
{
	return &r->summary;
}

long run_record_read(struct run_record *r, int stream, uint64_t offset, void *buf, size_t cap)
{
	size_t n = MIN(cap, (size_t)(r->summary.show[stream] - offset));

	if (r->code == -2)
		return -1;
	if (r->code >= 0)
		memset(buf, r->code, n);
	else if (r->text[stream])
		memcpy(buf, r->text[stream] + offset, n);
	return (long)n;
}

static void fill(struct run_wait *w, const char *const *argv, struct run_record *r)
{
	const char *program = argv[0], *arg = argv[1] ? argv[1] : "";

	r->refs = 1;
	r->code = -1;
	w->record = r;
	if (!strcmp(program, "echo")) {
		r->text[0] = xstrdup(arg);
		r->summary.show[0] = strlen(arg);
	} else if (!strcmp(program, "error")) {
		r->text[1] = xstrdup("oops\n");
		r->summary.show[1] = 5;
		r->summary.exit_code = 1;
	} else if (!strcmp(program, "bytes") && argv[1] && argv[2]) {
		r->code = (int)strtol(argv[2], NULL, 10);
		r->summary.show[0] = (uint64_t)strtoull(arg, NULL, 10);
	} else if (!strcmp(program, "lost")) {
		r->code = -2;
		r->summary.show[0] = 10;
	} else if (!strcmp(program, "gone")) {
		w->record = run_record_unref(r);
		refuse(w, 410, NULL, "The sandbox is gone");
	} else if (!strcmp(program, "busy")) {
		w->record = run_record_unref(r);
		refuse(w, 503, NULL, "Cannot tell at the moment");
	}
}

struct run_wait *service_run(struct service *s, const char *session_id,
			     const struct run_request *req, run_done done, void *ctx)
{
	uint64_t ms = !strcmp(req->argv[0], "sleep") && req->argv[1]
			      ? strtoull(req->argv[1], NULL, 10)
			      : 0;
	struct session *e = session_find(s, session_id);
	struct run_wait *w = op_new(s, session_id, ctx, ms);

	w->run = done;
	if (e)
		e->runs++;
	fill(w, req->argv, xnew(struct run_record));
	return w;
}

void service_run_leave(struct run_wait *w)
{
	w->service->left++;
	op_free(w);
}

void service_stop(struct service *s, const char *session_id, const char *run_id, plain_done done,
		  void *ctx)
{
	(void)run_id;
	op_new(s, session_id, ctx, 0)->plain = done;
}

/* ---- live streams: none here, tests/wire has a real service for them ---- */

struct stream *service_stream(struct service *s, const char *session_id,
			      const struct stream_request *req, const struct stream_events *events,
			      void *ctx, struct refusal *no)
{
	(void)s, (void)req, (void)events, (void)ctx;
	no->status = 410;
	(void)snprintf(no->detail, sizeof(no->detail), "The sandbox of session %s is gone",
		       session_id);
	return NULL;
}

void stream_input(struct stream *st, const void *data, size_t n)
{
	(void)st, (void)data, (void)n;
}

void stream_ack(struct stream *st, int stream, uint64_t offset)
{
	(void)st, (void)stream, (void)offset;
}

void stream_winch(struct stream *st, uint16_t rows, uint16_t columns)
{
	(void)st, (void)rows, (void)columns;
}

void stream_signal(struct stream *st, int signo)
{
	(void)st, (void)signo;
}

bool stream_busy(const struct stream *st)
{
	(void)st;
	return false;
}

void stream_leave(struct stream *st)
{
	(void)st;
}

/* ---- files: none of these tests has a session with files ---- */

struct file_call *service_file(struct service *s, const char *session_id, const char *name,
			       bool published, const struct file_request *rq,
			       const struct file_events *events, void *ctx, struct refusal *no)
{
	(void)s, (void)session_id, (void)name, (void)rq, (void)events, (void)ctx;
	*no = (struct refusal){ .status = 503, .detail = "no files here" };
	return NULL;
}

size_t file_call_body(struct file_call *f, const void *data, size_t n)
{
	(void)f, (void)data;
	return n;
}

void file_call_body_end(struct file_call *f)
{
	(void)f;
}

int file_call_pipe(struct file_call *f, int *ret_fd, struct garret_error *err)
{
	(void)f, (void)ret_fd;
	return garret_fail(err, GARRET_UNSUPPORTED, "no files here");
}

void file_call_pause(struct file_call *f, bool pause)
{
	(void)f, (void)pause;
}

void file_call_leave(struct file_call *f)
{
	(void)f;
}

const char *file_error_name(const struct garret_error *err)
{
	(void)err;
	return NULL;
}

struct file_call *service_archive(struct service *s, const char *id, const struct file_request *rq,
				  const struct file_events *events, void *ctx)
{
	(void)s, (void)id, (void)rq, (void)events, (void)ctx;
	return NULL;
}

void service_kept(struct service *s, kept_row row, plain_done done, void *ctx)
{
	(void)s, (void)row;
	done(ctx, &(struct refusal){ .status = 503, .detail = "no files here" });
}

void service_forget(struct service *s, const char *id, plain_done done, void *ctx)
{
	(void)s, (void)id;
	done(ctx, &(struct refusal){ .status = 503, .detail = "no files here" });
}

/* Nothing of it ever sleeps. */
bool service_asleep(struct service *s, const char *id)
{
	(void)s;
	(void)id;
	return false;
}

void service_wake(struct service *s, const char *id, wake_done done, void *ctx)
{
	(void)s;
	(void)id;
	done(ctx, &(struct refusal){ 0 });
}

void service_sleep(struct service *s, const char *id, wake_done done, void *ctx)
{
	service_wake(s, id, done, ctx);
}

int service_kept_events(struct service *s, const char *id, uint64_t generation,
			const struct event_filter *filter,
			void (*each)(void *ctx, const struct session_event *e), void *ctx)
{
	(void)s;
	(void)id;
	(void)generation;
	(void)filter;
	(void)each;
	(void)ctx;
	return -GARRET_NOT_FOUND;
}

uint64_t service_log_each(struct service *s, const struct event_filter *filter,
			  void (*each)(void *ctx, const struct service_event *e), void *ctx)
{
	(void)s;
	(void)filter;
	(void)each;
	(void)ctx;
	return 0;
}

struct event_reader *service_event_reader(struct service *s, const char *session_id,
					  void (*news)(void *ctx), void *ctx)
{
	(void)s;
	(void)session_id;
	(void)news;
	(void)ctx;
	return NULL;
}

struct event_reader *service_event_reader_free(struct event_reader *r)
{
	(void)r;
	return NULL;
}

struct service_metrics service_metrics(const struct service *s)
{
	(void)s;
	return (struct service_metrics){ 0 };
}
