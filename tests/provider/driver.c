/*
 * Drives a provider for tests: a line of JSON on standard input is something to
 * do, a line on standard output is what came of it.
 *
 *	test-provider-driver sandboxd '{"url":..., "token":..., ...}'
 *
 *	{"id":1,"do":"open","ref":null}           {"id":1,"ref":...,"work_dir":...}
 *	{"id":2,"box":1,"do":"run","argv":[...]}  {"id":2,"exit_code":0,"stdout":hex,...}
 *
 * What takes long can be followed by more: {"do":"stop","on":2}, "leave", "input".
 * Bytes are hex.  It ends when its input does, and closes boxes as they are.
 */
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/fd.h"
#include "base/list.h"
#include "base/mem.h"
#include "base/text.h"
#include "provider/sandboxd.h"

static const struct provider_ops *const ops = &sandboxd_ops;
static struct provider *provider;
static struct loop *loop;
static struct strbuf line = STRBUF_INIT;

/* Something that goes on. */
struct job {
	struct list link;
	json_int_t id;
	struct box *box;
	struct box_run *run;
	struct box_file *file;
	json_t *answer;
	struct strbuf data, body;
	size_t at;
	bool stream;
};
static struct list jobs = LIST_INIT(jobs);

static struct job *job_new(json_int_t id)
{
	struct job *j = xnew(struct job);

	j->id = id;
	j->answer = json_pack("{s:I}", "id", id);
	strbuf_init(&j->data);
	strbuf_init(&j->body);
	list_append(&jobs, &j->link);
	return j;
}

static void put(json_t *answer, const char *key, json_t *value)
{
	(void)json_object_set_new(answer, key, value);
}

static json_t *hex_of(const void *data, size_t n)
{
	char *s = xmalloc(2 * n + 1);
	json_t *v;

	hex_encode(data, n, s);
	v = json_string(s);
	free(s);
	return v;
}

static void unhex(const char *s, struct strbuf *out)
{
	const size_t n = strlen(s ? s : "") / 2;
	uint8_t *bytes = xmalloc(n + 1);

	if (s && hex_decode(s, bytes, n))
		strbuf_add(out, bytes, n);
	free(bytes);
}

static void say(json_t *v)
{
	char *s = json_dumps(v, JSON_COMPACT);

	(void)write_full(1, s, strlen(s));
	(void)write_full(1, "\n", 1);
	free(s);
}

static void put_error(json_t *answer, const struct garret_error *err)
{
	if (err && err->code)
		put(answer, "error",
		    json_pack("{s:s,s:s,s:i}", "code", garret_code_name((int)err->code), "msg",
			      err->msg, "sys", err->sys));
}

static void job_end(struct job *j, const struct garret_error *err, bool keep)
{
	put_error(j->answer, err);
	say(j->answer);
	json_decref(j->answer);
	j->answer = NULL;
	strbuf_release(&j->data);
	strbuf_release(&j->body);
	j->run = NULL;
	j->file = NULL;
	if (keep)
		return;
	list_remove(&j->link);
	free(j);
}

static struct job *find(const json_t *v, const char *key)
{
	const json_int_t id = json_integer_value(json_object_get(v, key));
	struct job *j;

	list_foreach (j, &jobs, link)
		if (j->id == id)
			return j;
	return NULL;
}

/* ---- boxes ---- */

static void on_named(void *ctx, const char *ref)
{
	struct job *j = ctx;
	json_t *v = json_pack("{s:I,s:s}", "id", j->id, "named", ref);

	say(v);
	json_decref(v);
}

static void on_open(void *ctx, struct box *box, const struct garret_error *err)
{
	struct job *j = ctx;

	j->box = box;
	if (box) {
		put(j->answer, "ref", json_string(ops->ref(box)));
		put(j->answer, "work_dir", json_string(sandboxd_work_dir(box)));
		put(j->answer, "ours", json_boolean(sandboxd_is_ours(box)));
	}
	job_end(j, err, box != NULL);
}

static void on_died(void *ctx)
{
	struct job *j = ctx;
	json_t *v = json_pack("{s:I,s:b}", "id", j->id, "died", 1);

	say(v);
	json_decref(v);
}

static void do_open(struct job *j, const json_t *v)
{
	const struct box_spec spec = {
		.id = "box",
		.ref = json_string_value(json_object_get(v, "ref")),
		.runtime = json_string_value(json_object_get(v, "runtime")),
		.named = on_named,
		.named_ctx = j,
	};

	ops->open(provider, &spec, on_open, j);
}

static void on_done(void *ctx, const struct garret_error *err)
{
	job_end(ctx, err, false);
}

static void do_close(struct job *j, const json_t *v, struct job *box)
{
	const char *how = json_string_value(json_object_get(v, "how"));
	struct box *b = take_ptr(&box->box);

	ops->close(b,
		   !strcmp(how, "purge")   ? BOX_CLOSE_PURGE
		   : !strcmp(how, "leave") ? BOX_CLOSE_LEAVE
					   : BOX_CLOSE_PLAIN,
		   on_done, j);
	list_remove(&box->link);
	free(box);
}

static void on_usage(void *ctx, const struct box_usage *u, const struct garret_error *err)
{
	struct job *j = ctx;

	if (u)
		put(j->answer, "memory", json_integer((json_int_t)u->memory_bytes));
	job_end(j, err, false);
}

/* ---- commands ---- */

static void on_run_end(void *ctx, struct box_run_end *end)
{
	static const char *const names[] = { "stdout", "stderr" };
	struct job *j = ctx;

	put(j->answer, "exit_code", json_integer(end->exit_code));
	put(j->answer, "timed_out", json_boolean(end->timed_out));
	put(j->answer, "output_limited", json_boolean(end->output_limited));
	put(j->answer, "stopped", json_boolean(end->stopped));
	put(j->answer, "gone", json_boolean(end->gone));
	put(j->answer, "limit_ms", json_integer(end->limit_ms));
	put(j->answer, "limit_bytes", json_integer((json_int_t)end->limit_bytes));
	for (int s = 0; s < 2 && !j->stream; s++)
		put(j->answer, names[s], hex_of(end->head[s].buf, end->head[s].len));
	if (j->stream)
		put(j->answer, "stdout", hex_of(j->data.buf, j->data.len));
	job_end(j, &end->failed, false);
}

static void on_out(void *ctx, int stream, const void *data, size_t n)
{
	struct job *j = ctx;

	if (stream == 0)
		strbuf_add(&j->data, data, n);
	ops->ack(j->run, stream, stream ? 0 : j->data.len);
}

static void on_taken(void *ctx, uint64_t bytes)
{
	(void)ctx, (void)bytes;
}

static const struct box_stream_events stream_events = { on_out, on_taken, on_run_end };

static const char **words(const json_t *v, const char *key)
{
	const json_t *list = json_object_get(v, key);
	const size_t n = json_array_size(list);
	const char **out = xcalloc(n + 1, sizeof(*out));

	for (size_t i = 0; i < n; i++)
		out[i] = json_string_value(json_array_get(list, i));
	return out;
}

static void do_run(struct job *j, const json_t *v, struct box *box, bool stream)
{
	autofree const char **argv = words(v, "argv"), **env = words(v, "env");
	const uint32_t ms = (uint32_t)json_integer_value(json_object_get(v, "timeout_ms"));
	uint8_t id[RUN_ID_BYTES];
	struct garret_error err = { 0 };
	const struct box_run_spec run = {
		.id = id,
		.argv = argv,
		.env = env,
		.cwd = json_string_value(json_object_get(v, "cwd")),
		.timeout_ms = ms,
		.output_limit = (uint64_t)json_integer_value(json_object_get(v, "output_limit")),
		.input = json_is_true(json_object_get(v, "input")),
	};
	const struct box_stream_spec live = { .argv = argv,
					      .env = env,
					      .timeout_ms = ms,
					      .tty = json_is_true(json_object_get(v, "tty")),
					      .rows = 30,
					      .columns = 100 };

	if (getrandom(id, sizeof(id), 0) != (ssize_t)sizeof(id))
		abort();
	j->stream = stream;
	j->run = stream ? ops->stream(box, &live, &stream_events, j, &err)
			: ops->run(box, &run, on_run_end, j, &err);
	if (!j->run)
		job_end(j, &err, false);
}

static void on_more(const json_t *v, struct job *j)
{
	const char *what = json_string_value(json_object_get(v, "do"));
	struct strbuf data = STRBUF_INIT;

	unhex(json_string_value(json_object_get(v, "data")), &data);
	if (!strcmp(what, "stop"))
		ops->stop(j->run, 1000);
	else if (!strcmp(what, "input"))
		ops->input(j->run, data.buf, data.len);
	else if (!strcmp(what, "signal"))
		ops->signal(j->run, (int)json_integer_value(json_object_get(v, "signal")));
	else if (!strcmp(what, "winch"))
		ops->winch(j->run, 50, 120);
	else if (!strcmp(what, "leave") && j->run)
		ops->leave(j->run);
	else if (!strcmp(what, "leave"))
		ops->file_leave(j->file);
	strbuf_release(&data);
	if (strcmp(what, "leave") != 0)
		return;
	put(j->answer, "left", json_true());
	job_end(j, NULL, false);
}

/* ---- files ---- */

static json_t *info_of(const struct file_info *i)
{
	static const char *const types[] = { "file", "directory", "other", "dangling" };

	return json_pack(
		"{s:s,s:o,s:o,s:i,s:i,s:I,s:i,s:[I,I,I,I]}", "type", types[i->type], "name",
		hex_of(i->name, strlen(i->name)), "target", hex_of(i->target, strlen(i->target)),
		"link", i->link, "mode", i->mode, "size",
		i->unknown & FILE_NO_SIZE ? (json_int_t)-1 : (json_int_t)i->tag.size, "unknown",
		i->unknown, "tag", (json_int_t)i->tag.inode, (json_int_t)i->tag.size,
		(json_int_t)i->tag.mtime_ns, (json_int_t)i->tag.ctime_ns);
}

static void add(struct job *j, const char *key, json_t *item)
{
	json_t *list = json_object_get(j->answer, key);

	if (!list) {
		list = json_array();
		put(j->answer, key, list);
	}
	(void)json_array_append_new(list, item);
}

static void on_info(void *ctx, const struct file_info *info)
{
	put(((struct job *)ctx)->answer, "info", info_of(info));
}

static void on_entry(void *ctx, const struct file_info *info)
{
	add(ctx, "entries", info_of(info));
}

static void on_match(void *ctx, const struct file_match *m)
{
	add(ctx, "matches",
	    json_pack("[o,I,i,i,o]", hex_of(m->name, strlen(m->name)), (json_int_t)m->line,
		      m->column, m->length, hex_of(m->text, m->text_bytes)));
}

static void on_data(void *ctx, const void *data, size_t n)
{
	strbuf_add(&((struct job *)ctx)->data, data, n);
}

static void give(struct job *j)
{
	size_t n = 1;

	while (n && j->at < j->body.len) {
		n = ops->file_body(j->file, j->body.buf + j->at, j->body.len - j->at);
		j->at += n;
	}
	if (j->at == j->body.len)
		ops->file_body_end(j->file);
}

static void on_room(void *ctx)
{
	struct job *j = ctx;

	if (j->at < j->body.len)
		give(j);
}

static void on_end(void *ctx, const struct file_end *end, const struct garret_error *err)
{
	struct job *j = ctx;

	put(j->answer, "data", hex_of(j->data.buf, j->data.len));
	put(j->answer, "path", hex_of(end->path, strlen(end->path)));
	put(j->answer, "digest", hex_of(end->digest, sizeof(end->digest)));
	put(j->answer, "count", json_integer((json_int_t)end->count));
	put(j->answer, "skipped", json_integer((json_int_t)end->skipped));
	put(j->answer, "truncated", json_boolean(end->truncated));
	job_end(j, err, false);
}

static const struct file_events events = { on_info, on_entry, on_match, on_data, on_room, on_end };

static uint64_t number(const json_t *v, const char *key, uint64_t otherwise)
{
	const json_t *n = json_object_get(v, key);

	return json_is_integer(n) ? (uint64_t)json_integer_value(n) : otherwise;
}

static void do_file(struct job *j, const json_t *v, struct box *box)
{
	const json_t *tag = json_object_get(v, "tag");
	struct strbuf path = STRBUF_INIT, to = STRBUF_INIT;
	struct garret_error err = { 0 };
	struct file_request rq = {
		.op = (uint8_t)number(v, "op", 0),
		.flags = (uint32_t)number(v, "flags", 0),
		.pattern = json_string_value(json_object_get(v, "pattern")),
		.include = json_string_value(json_object_get(v, "include")),
		.offset = number(v, "offset", 0),
		.length = number(v, "length", UINT64_MAX),
		.mode = (uint32_t)number(v, "mode", 0),
		.max_depth = (uint32_t)number(v, "max_depth", 0),
		.max_entries = (uint32_t)number(v, "max_entries", 0),
		.max_bytes = number(v, "max_bytes", 0),
	};

	if (rq.op == FILE_EDIT && !json_object_get(v, "offset"))
		rq.offset = 0;
	if (tag)
		rq.tag = (struct file_tag){ (uint64_t)json_integer_value(json_array_get(tag, 0)),
					    (uint64_t)json_integer_value(json_array_get(tag, 1)),
					    (uint64_t)json_integer_value(json_array_get(tag, 2)),
					    (uint64_t)json_integer_value(json_array_get(tag, 3)) };
	unhex(json_string_value(json_object_get(v, "path")), &path);
	unhex(json_string_value(json_object_get(v, "to")), &to);
	rq.path = path.buf;
	rq.to = to.buf;
	j->file = ops->file(box, &rq, &events, j, &err);
	strbuf_release(&path);
	strbuf_release(&to);
	if (!j->file) {
		job_end(j, &err, false);
		return;
	}
	unhex(json_string_value(json_object_get(v, "body")), &j->body);
	if (json_object_get(v, "body"))
		give(j);
}

/* ---- lines ---- */

static void on_command(const json_t *v)
{
	const char *what = json_string_value(json_object_get(v, "do"));
	struct job *on = find(v, "on"), *box = find(v, "box"), *j;

	if (json_object_get(v, "on")) {
		if (on)
			on_more(v, on);
		return;
	}
	j = job_new(json_integer_value(json_object_get(v, "id")));
	if (!strcmp(what, "open")) {
		do_open(j, v);
	} else if (!strcmp(what, "forget")) {
		ops->forget(provider, json_string_value(json_object_get(v, "ref")), BOX_FORGET_ALL,
			    0, on_done, j);
	} else if (!box || !box->box) {
		job_end(j, &(struct garret_error){ .code = GARRET_MISUSE, .msg = "no such box" },
			false);
	} else if (!strcmp(what, "close")) {
		do_close(j, v, box);
	} else if (!strcmp(what, "watch")) {
		ops->watch(box->box, on_died, box);
		job_end(j, NULL, false);
	} else if (!strcmp(what, "usage")) {
		ops->usage(box->box, on_usage, j);
	} else if (!strcmp(what, "file")) {
		do_file(j, v, box->box);
	} else {
		do_run(j, v, box->box, !strcmp(what, "stream"));
	}
}

static void on_stdin(struct loop_io *io, uint32_t ready)
{
	static char buf[1 << 16];
	ssize_t n = read(io->fd, buf, sizeof(buf));
	char *end;

	(void)ready;
	if (n <= 0) {
		loop_quit(loop, 0);
		return;
	}
	strbuf_add(&line, buf, (size_t)n);
	while ((end = memchr(line.buf, '\n', line.len))) {
		json_error_t no;
		json_t *v = json_loadb(line.buf, (size_t)(end - line.buf), 0, &no);

		strbuf_remove_front(&line, (size_t)(end - line.buf) + 1);
		if (!v)
			abort();
		on_command(v);
		json_decref(v);
	}
}

static void on_waiting(void *ctx)
{
	(void)ctx;
	(void)write_full(1, "{\"waiting\":true}\n", 17);
}

static void on_quiet(void *ctx, const struct garret_error *err)
{
	(void)ctx, (void)err;
	loop_quit(loop, 0);
}

static int make(const char *text, struct garret_error *err)
{
	json_error_t no;
	json_t *v = json_loads(text, 0, &no);
	autofree const char **env = words(v, "env");
	const struct sandboxd_config config = {
		.loop = loop,
		.url = json_string_value(json_object_get(v, "url")),
		.socket = json_string_value(json_object_get(v, "socket")),
		.token = json_string_value(json_object_get(v, "token")),
		.session_name = json_string_value(json_object_get(v, "session_name")),
		.runtime = json_string_value(json_object_get(v, "runtime")),
		.tenant = json_string_value(json_object_get(v, "tenant")),
		.env = env,
		.request_ms = (uint32_t)number(v, "request_ms", 0),
		.opening_ms = (uint32_t)number(v, "opening_ms", 0),
		.waiting = on_waiting,
	};
	int rc = sandboxd_new(&config, &provider, err);

	json_decref(v);
	return rc;
}

int main(int argc, char **argv)
{
	struct loop_io in = { .fd = -EBADF };
	struct garret_error err = { 0 };

	(void)signal(SIGPIPE, SIG_IGN);
	if (argc != 3 || loop_new(&loop, &err) < 0 || make(argv[2], &err) < 0) {
		json_t *v = json_object();

		put_error(v, &err);
		say(v);
		json_decref(v);
		loop = loop_free(loop);
		return 1;
	}
	if (loop_io_add(loop, &in, 0, EPOLLIN, on_stdin, NULL, &err) < 0)
		return 1;
	(void)loop_run(loop);
	loop_io_remove(&in);
	/* Boxes are left as they are; what goes on in them ends. */
	for (;;) {
		struct job *j, *box = NULL;

		list_foreach (j, &jobs, link)
			if (j->box)
				box = j;
		if (!box)
			break;
		ops->close(take_ptr(&box->box), BOX_CLOSE_LEAVE, on_quiet, NULL);
		(void)loop_run(loop);
	}
	provider = sandboxd_free(provider);
	loop = loop_free(loop);
	strbuf_release(&line);
	while (!list_empty(&jobs)) {
		struct job *j = list_entry(jobs.next, struct job, link);

		json_decref(j->answer);
		strbuf_release(&j->data);
		strbuf_release(&j->body);
		list_remove(&j->link);
		free(j);
	}
	return 0;
}
