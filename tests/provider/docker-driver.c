/*
 * The Docker provider behind lines of JSON, for tests: a request a line on
 * standard input, an event a line on standard output.
 *
 *	test-docker CONFIG
 *
 * CONFIG is one JSON object with the fields of docker_config.  Requests have a
 * "tag", which their events repeat, and for most a "box", a number of the
 * caller's choice.
 */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <nettle/base64.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/list.h"
#include "base/mem.h"
#include "base/text.h"
#include "base/time.h"
#include "provider/docker.h"
#include "provider/docker_impl.h"

#define BOXES 64

struct event {
	struct list link;
	json_int_t tag, box;
	struct strbuf in;
	uint64_t bytes;
	unsigned rows;
	json_t *list;
	struct box_run *run;
	struct box_file *file;
	struct strbuf body; /* of a write */
	size_t sent;
	uint64_t start_us;
	uint64_t streamed[2];
};

static struct list open_events = LIST_INIT(open_events);
static struct loop *loop;
static struct provider *provider;
static struct box *boxes[BOXES];
static struct event *runs[BOXES]; /* by the run's number */
static struct loop_io input;
static struct strbuf line;

static void say(json_t *v)
{
	char *text = json_dumps(v, JSON_COMPACT);

	(void)printf("%s\n", text);
	(void)fflush(stdout);
	free(text);
	json_decref(v);
}

static json_t *answer(const struct event *e, const char *kind, const struct garret_error *err)
{
	json_t *v = json_pack("{s:s,s:I,s:I}", "event", kind, "tag", e->tag, "box", e->box);

	if (err && err->code) {
		json_object_set_new(v, "error", json_string(garret_code_name((int)err->code)));
		json_object_set_new(v, "text", json_string(err->msg));
	}
	return v;
}

static json_t *bytes(const void *data, size_t n)
{
	char *out = xmalloc(BASE64_ENCODE_RAW_LENGTH(n) + 1);
	json_t *v;

	base64_encode_raw(out, n, data);
	v = json_stringn(out, BASE64_ENCODE_RAW_LENGTH(n));
	free(out);
	return v;
}

static void event_free(struct event *e)
{
	strbuf_release(&e->in);
	strbuf_release(&e->body);
	json_decref(e->list);
	list_remove(&e->link);
	free(e);
}

static struct event *event_new(const json_t *rq)
{
	struct event *e = xnew(struct event);

	list_append(&open_events, &e->link);
	e->tag = json_integer_value(json_object_get(rq, "tag"));
	e->box = json_integer_value(json_object_get(rq, "box"));
	strbuf_init(&e->in);
	strbuf_init(&e->body);
	e->list = json_array();
	e->start_us = now_us();
	return e;
}

static const char *text(const json_t *rq, const char *key)
{
	return json_string_value(json_object_get(rq, key));
}

static uint64_t number(const json_t *rq, const char *key)
{
	return (uint64_t)json_integer_value(json_object_get(rq, key));
}

static const char **strings(const json_t *list)
{
	size_t n = json_array_size(list);
	const char **out;

	if (!list)
		return NULL;
	out = xcalloc(n + 1, sizeof(*out));
	for (size_t i = 0; i < n; i++)
		out[i] = json_string_value(json_array_get(list, i));
	return out;
}

/* ---- boxes ---- */

/* Each box has a directory of its own for its spool files, as each session does. */
static const char *runs_of(json_int_t box)
{
	static char name[32];

	(void)snprintf(name, sizeof(name), "box%lld", (long long)box);
	return name;
}

static void on_died(void *ctx)
{
	struct event *e = ctx;

	say(answer(e, "died", NULL));
}

static void on_opened(void *ctx, struct box *b, const struct garret_error *err)
{
	struct event *e = ctx;
	json_t *v = answer(e, "opened", err);

	boxes[e->box] = b;
	if (b) {
		json_object_set_new(v, "ref", json_string(docker_ops.ref(b)));
		json_object_set_new(v, "reach", json_string(docker_ops.reach(b)));
		json_object_set_new(v, "mark", json_string(docker_ops.mark(b)));
		docker_ops.watch(b, on_died, e); /* it stays */
	}
	say(v);
}

static void on_named(void *ctx, const char *ref)
{
	json_t *v = answer(ctx, "named", NULL);

	json_object_set_new(v, "ref", json_string(ref));
	say(v);
}

static void do_open(const json_t *rq, struct event *e)
{
	struct box_spec spec = { .id = text(rq, "id"),
				 .runtime = text(rq, "image"),
				 .work_dir = text(rq, "work_dir"),
				 .network = text(rq, "network"),
				 .memory_bytes = number(rq, "memory"),
				 .cpu_millis = (uint32_t)number(rq, "cpu_millis"),
				 .pids = (uint32_t)number(rq, "pids"),
				 .tmpfs_bytes = number(rq, "tmpfs"),
				 .disk_bytes = number(rq, "disk"),
				 .attach = json_is_true(json_object_get(rq, "attach")),
				 .ref = text(rq, "ref"),
				 .runs = runs_of(e->box),
				 .named = on_named,
				 .named_ctx = e };

	if (text(rq, "mark"))
		docker_ops.adopt(provider, &spec, text(rq, "mark"), on_opened, e);
	else
		docker_ops.open(provider, &spec, on_opened, e);
}

static void on_done(void *ctx, const struct garret_error *err)
{
	json_t *v = answer(ctx, "done", err);

	json_object_set(v, "rows", ((struct event *)ctx)->list);
	say(v);
	event_free(ctx);
}

static void do_close(const json_t *rq, struct event *e)
{
	static const char *const hows[] = { "plain", "purge", "keep", "leave" };
	struct box *b = boxes[e->box];
	int how = 0;

	while (how < 3 && strcmp(hows[how], text(rq, "how")) != 0)
		how++;
	boxes[e->box] = NULL;
	docker_ops.close(b, (enum box_close)how, on_done, e);
}

static void on_row(void *ctx, const struct kept_files *k)
{
	json_array_append_new(((struct event *)ctx)->list, json_string(k->id));
}

static void on_usage(void *ctx, const struct box_usage *u, const struct garret_error *err)
{
	json_t *v = answer(ctx, "usage", err);

	if (u) {
		json_object_set_new(v, "memory", json_integer((json_int_t)u->memory_bytes));
		json_object_set_new(v, "limit", json_integer((json_int_t)u->memory_limit_bytes));
		json_object_set_new(v, "pids", json_integer((json_int_t)u->pids));
		json_object_set_new(v, "cpu", json_integer((json_int_t)u->cpu_us));
	}
	say(v);
	event_free(ctx);
}

/* ---- commands ---- */

static struct strbuf spooled(json_int_t box, const struct box_run_end *end, int s)
{
	struct strbuf out = STRBUF_INIT;
	int fd = docker_ops.spool_open(provider, runs_of(box), end->spool, s);

	if (fd >= 0) {
		strbuf_reserve(&out, end->total[s] + 1);
		out.len = (size_t)read_full(fd, out.buf, end->total[s]);
		fd_close(fd);
	}
	return out;
}

static void on_run_end(void *ctx, struct box_run_end *end)
{
	struct event *e = ctx;
	json_t *v = answer(e, "ended", &end->failed);

	for (int s = 0; s < 2; s++) {
		struct strbuf out = end->spooled[s] ? spooled(e->box, end, s) : end->head[s];

		json_object_set_new(v, s ? "err" : "out",
				    bytes(out.buf, MIN(out.len, end->total[s])));
		json_object_set_new(v, s ? "err_total" : "out_total",
				    json_integer((json_int_t)end->total[s]));
		if (end->spooled[s])
			strbuf_release(&out);
	}
	json_object_set_new(v, "code", json_integer(end->exit_code));
	json_object_set_new(v, "gone", json_boolean(end->gone));
	json_object_set_new(v, "timed_out", json_boolean(end->timed_out));
	json_object_set_new(v, "limited", json_boolean(end->output_limited));
	json_object_set_new(v, "stopped", json_boolean(end->stopped));
	json_object_set_new(v, "us", json_integer((json_int_t)(now_us() - e->start_us)));
	say(v);
	for (unsigned i = 0; i < BOXES; i++)
		if (runs[i] == e)
			runs[i] = NULL;
	event_free(e);
}

static unsigned run_number(const json_t *rq)
{
	return (unsigned)number(rq, "run") % BOXES;
}

static void do_run(const json_t *rq, struct event *e)
{
	const char **argv = strings(json_object_get(rq, "argv")),
		   **env = strings(json_object_get(rq, "env"));
	uint8_t id[RUN_ID_BYTES];
	struct garret_error err = { 0 };
	const struct box_run_spec spec = {
		.id = id,
		.argv = argv,
		.env = env,
		.cwd = text(rq, "cwd"),
		.timeout_ms = (uint32_t)number(rq, "timeout_ms"),
		.output_limit = number(rq, "limit") ? number(rq, "limit") : 10 << 20,
		.input = json_is_true(json_object_get(rq, "input")),
	};

	if (docker_random(id, sizeof(id), &err) < 0)
		abort();
	e->run = docker_ops.run(boxes[e->box], &spec, on_run_end, e, &err);
	runs[run_number(rq)] = e;
	if (!e->run) {
		runs[run_number(rq)] = NULL;
		say(answer(e, "ended", &err));
		event_free(e);
	}
	free(argv);
	free(env);
}

static void on_stream_out(void *ctx, int stream, const void *data, size_t n)
{
	struct event *e = ctx;
	json_t *v = answer(e, "output", NULL);

	json_object_set_new(v, "stream", json_integer(stream));
	json_object_set_new(v, "data", bytes(data, n));
	say(v);
	e->streamed[stream] += n;
	docker_ops.ack(e->run, stream, e->streamed[stream]);
}

static void on_stream_taken(void *ctx, uint64_t n)
{
	(void)ctx;
	(void)n;
}

static const struct box_stream_events stream_events = { .out = on_stream_out,
							.taken = on_stream_taken,
							.end = on_run_end };

static void do_stream(const json_t *rq, struct event *e)
{
	const char **argv = strings(json_object_get(rq, "argv"));
	struct garret_error err = { 0 };
	const struct box_stream_spec spec = { .argv = argv,
					      .timeout_ms = (uint32_t)number(rq, "timeout_ms"),
					      .tty = json_is_true(json_object_get(rq, "tty")),
					      .rows = (uint16_t)number(rq, "rows"),
					      .columns = (uint16_t)number(rq, "columns") };

	e->run = docker_ops.stream(boxes[e->box], &spec, &stream_events, e, &err);
	runs[run_number(rq)] = e;
	if (!e->run) {
		runs[run_number(rq)] = NULL;
		say(answer(e, "ended", &err));
		event_free(e);
	}
	free(argv);
}

static void do_input(const json_t *rq, struct event *e)
{
	struct event *r = runs[run_number(rq)];
	const char *data = text(rq, "data");

	/* As whoever calls it must: in pieces that fit into a frame. */
	for (size_t n; r && data && *data; data += n) {
		n = MIN(strlen(data), 32768);
		docker_ops.input(r->run, data, n);
	}
	if (r && json_is_true(json_object_get(rq, "end")))
		docker_ops.input(r->run, NULL, 0);
	event_free(e);
}

static void do_stop(const json_t *rq, struct event *e)
{
	struct event *r = runs[run_number(rq)];

	if (r && json_object_get(rq, "signal"))
		docker_ops.signal(r->run, (int)number(rq, "signal"));
	else if (r && json_object_get(rq, "rows"))
		docker_ops.winch(r->run, (uint16_t)number(rq, "rows"),
				 (uint16_t)number(rq, "columns"));
	else if (r)
		docker_ops.stop(r->run, 2000);
	event_free(e);
}

/* ---- files ---- */

static void on_info(void *ctx, const struct file_info *i)
{
	struct event *e = ctx;

	json_array_append_new(e->list,
			      json_pack("{s:s,s:i,s:I}", "name", i->name ? i->name : "", "type",
					(int)i->type, "size", (json_int_t)i->tag.size));
}

static void on_file_data(void *ctx, const void *data, size_t n)
{
	strbuf_add(&((struct event *)ctx)->in, data, n);
}

static void more_body(void *ctx)
{
	struct event *e = ctx;

	while (e->sent < e->body.len) {
		size_t n =
			docker_ops.file_body(e->file, e->body.buf + e->sent, e->body.len - e->sent);

		e->sent += n;
		if (e->sent < e->body.len)
			return;
	}
	docker_ops.file_body_end(e->file);
}

static void on_file_end(void *ctx, const struct file_end *end, const struct garret_error *err)
{
	struct event *e = ctx;
	json_t *v = answer(e, "file", err);

	(void)end;
	json_object_set_new(v, "data", bytes(e->in.buf, e->in.len));
	json_object_set(v, "rows", e->list);
	json_object_set_new(v, "us", json_integer((json_int_t)(now_us() - e->start_us)));
	say(v);
	event_free(e);
}

static const struct file_events file_events = { .info = on_info,
						.entry = on_info,
						.data = on_file_data,
						.room = more_body,
						.end = on_file_end };

static void do_file(const json_t *rq, struct event *e)
{
	static const struct {
		const char *name;
		uint8_t op;
	} ops[] = { { "stat", FILE_STAT },   { "list", FILE_LIST },     { "read", FILE_READ },
		    { "write", FILE_WRITE }, { "remove", FILE_REMOVE }, { "mkdir", FILE_MKDIR } };
	struct file_request f = { .path = text(rq, "path"),
				  .length = UINT64_MAX,
				  .mode = 0644,
				  .flags = FILE_PARENTS | FILE_TREE,
				  .to = "",
				  .pattern = "",
				  .include = "" };
	struct garret_error err = { 0 };
	const char *data = text(rq, "data");

	for (size_t i = 0; i < ARRAY_SIZE(ops); i++)
		if (!strcmp(ops[i].name, text(rq, "file")))
			f.op = ops[i].op;
	if (f.op == FILE_READ || f.op == FILE_LIST || f.op == FILE_STAT)
		f.flags = 0;
	if (f.op == FILE_REMOVE)
		f.flags = FILE_TREE;
	if (f.op == FILE_MKDIR || f.op == FILE_WRITE)
		f.flags = FILE_PARENTS;
	if (data)
		for (uint64_t n = number(rq, "times") ? number(rq, "times") : 1; n; n--)
			strbuf_addstr(&e->body, data);
	e->file = docker_ops.file(boxes[e->box], &f, &file_events, e, &err);
	if (!e->file) {
		say(answer(e, "file", &err));
		event_free(e);
	} else if (f.op == FILE_WRITE) {
		more_body(e);
	}
}

/* ---- requests ---- */

static void handle(const json_t *rq)
{
	struct event *e = event_new(rq);
	const char *op = text(rq, "op");

	if (!strcmp(op, "open")) {
		do_open(rq, e);
	} else if (!strcmp(op, "close")) {
		do_close(rq, e);
	} else if (!strcmp(op, "run")) {
		do_run(rq, e);
	} else if (!strcmp(op, "stream")) {
		do_stream(rq, e);
	} else if (!strcmp(op, "input")) {
		do_input(rq, e);
	} else if (!strcmp(op, "stop")) {
		do_stop(rq, e);
	} else if (!strcmp(op, "file")) {
		do_file(rq, e);
	} else if (!strcmp(op, "kept")) {
		docker_ops.kept(provider, false, on_row, on_done, e);
	} else if (!strcmp(op, "forget")) {
		docker_ops.forget(provider, text(rq, "ref"), BOX_FORGET_ALL, 0, on_done, e);
	} else if (!strcmp(op, "settle")) {
		docker_ops.settle(provider);
		on_done(e, NULL);
	} else if (!strcmp(op, "usage")) {
		docker_ops.usage(boxes[e->box], on_usage, e);
	} else if (!strcmp(op, "limits")) {
		const struct box_limits l = { .memory_bytes = number(rq, "memory"),
					      .pids = (uint32_t)number(rq, "pids") };

		docker_ops.limits(boxes[e->box], BOX_MEMORY | BOX_PIDS, &l, on_done, e);
	} else {
		loop_quit(loop, 0);
		event_free(e);
	}
}

static void on_input(struct loop_io *io, uint32_t events)
{
	char buf[65536];
	ssize_t n = read(io->fd, buf, sizeof(buf));
	char *eol;

	(void)events;
	if (n <= 0) {
		loop_quit(loop, 0);
		return;
	}
	strbuf_add(&line, buf, (size_t)n);
	while ((eol = memchr(line.buf, '\n', line.len))) {
		size_t used = (size_t)(eol - line.buf) + 1;
		json_t *v = json_loadb(line.buf, used, 0, NULL);

		strbuf_remove_front(&line, used);
		if (v)
			handle(v);
		json_decref(v);
	}
}

int main(int argc, char **argv)
{
	json_t *c = argc == 2 ? json_loads(argv[1], 0, NULL) : NULL;
	const char **env = strings(json_object_get(c, "env"));
	const char **volumes = strings(json_object_get(c, "volumes"));
	const char **labels = strings(json_object_get(c, "labels"));
	struct garret_error err = { 0 };
	int rc;

	if (!c || loop_new(&loop, NULL) < 0)
		return 2;
	strbuf_init(&line);
	rc = docker_new(
		&(struct docker_config){
			.loop = loop,
			.host = text(c, "host"),
			.owner = text(c, "owner"),
			.runs_fd = text(c, "runs") ? open(text(c, "runs"), O_DIRECTORY | O_CLOEXEC)
						   : -EBADF,
			.init = text(c, "init"),
			.way = (enum docker_way)number(c, "way"),
			.image = text(c, "image"),
			.work_dir = text(c, "work_dir"),
			.container_name = text(c, "container_name"),
			.sessions = json_is_true(json_object_get(c, "sessions")),
			.remove_closed = json_is_true(json_object_get(c, "remove_closed")),
			.no_pull = json_is_true(json_object_get(c, "no_pull")),
			.network = text(c, "network"),
			.oci_runtime = text(c, "oci_runtime"),
			.user = text(c, "user"),
			.workspace_root = text(c, "workspace_root"),
			.env = env,
			.volumes = volumes,
			.labels = labels,
			.memory_bytes = number(c, "memory"),
			.tmpfs_bytes = number(c, "tmpfs"),
			.cpu_millis = (uint32_t)number(c, "cpu_millis"),
			.pids = (uint32_t)number(c, "pids"),
		},
		&provider, &err);
	if (rc < 0) {
		say(json_pack("{s:s,s:s,s:s}", "event", "config", "error", garret_code_name(-rc),
			      "text", err.msg));
		loop = loop_free(loop);
		json_decref(c);
		free(env);
		free(volumes);
		free(labels);
		return 1;
	}
	(void)loop_io_add(loop, &input, 0, EPOLLIN, on_input, NULL, NULL);
	say(json_pack("{s:s}", "event", "config"));
	(void)loop_run(loop);
	loop_io_remove(&input);
	provider = docker_free(provider);
	while (!list_empty(&open_events))
		event_free(list_entry(open_events.next, struct event, link));
	loop = loop_free(loop);
	strbuf_release(&line);
	json_decref(c);
	free(env);
	free(volumes);
	free(labels);
	return 0;
}
