/* Streams, giving up, wrappers, replay. */
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/time.h"
#include "conform/ground.h"

static void fill(uint8_t *buf, size_t n, uint64_t at)
{
	for (size_t i = 0; i < n; i++)
		buf[i] = (uint8_t)((at + i) * 31 + ((at + i) >> 13));
}

static void check_stream(struct ground *g, const char *path, size_t total)
{
	enum { PIECE = 70001 };
	autofree uint8_t *buf = xmalloc(PIECE), *want = xmalloc(PIECE);
	struct garret_writer *w = NULL;
	struct garret_reader *r = NULL;
	bool same = true;
	size_t at = 0;

	WANT_OK(g, garret_writer_open(g->shared, path, 0, &w, err));
	while (at < total) {
		size_t n = MIN((size_t)PIECE, total - at);

		fill(buf, n, at);
		if (garret_writer_write(w, buf, n, NULL) < 0)
			break;
		at += n;
	}
	WANT_OK(g, garret_writer_commit(w, err));
	WANT_OK(g, garret_reader_open(g->shared, path, 0, UINT64_MAX, &r, err));
	for (at = 0;;) {
		ssize_t n = garret_reader_read(r, buf, PIECE, NULL);

		if (n <= 0)
			break;
		fill(want, (size_t)n, at);
		same = same && !memcmp(buf, want, (size_t)n);
		at += (size_t)n;
	}
	garret_reader_close(r);
	WANT(g, at == total && same);
}

static void streams_of_any_length(struct ground *g)
{
	const char *dir = ground_dir(g);
	static const size_t sizes[] = { 0, 1, 65535, 65536, 65537, 3u << 20, (24u << 20) + 7 };

	for (size_t i = 0; i < ARRAY_SIZE(sizes) && !g->failed; i++)
		check_stream(g, in(dir, "stream"), sizes[i]);
}

static void an_aborted_write_leaves_the_old(struct ground *g)
{
	const char *dir = ground_dir(g);
	autofree uint8_t *buf = xcalloc(1, 1u << 20);
	struct garret_writer *w = NULL;
	autolist l = { 0 };

	WANT_OK(g, garret_write(g->shared, in(dir, "file"), "old", 3, 0, err));
	WANT_OK(g, garret_writer_open(g->shared, in(dir, "file"), 0, &w, err));
	(void)garret_writer_write(w, buf, 1u << 20, NULL);
	garret_writer_abort(w);
	WANT(g, has_bytes(g, g->shared, in(dir, "file"), "old", 3));
	/* Its temporary goes as well, a moment later where a process has to end first. */
	for (int i = 0; i < 100; i++) {
		garret_list_release(&l);
		WANT_OK(g, garret_list_dir(g->shared, dir, &l, err));
		if (l.n == 1)
			return;
		(void)usleep(50000);
	}
	WANT(g, l.n == 1);
}

static void a_tree_as_an_archive(struct ground *g)
{
	const char *dir = ground_dir(g);
	struct garret_reader *r = NULL;
	struct garret_writer *w = NULL;
	autofree char *buf = xmalloc(65536);
	ssize_t n;

	WANT_OK(g, garret_write(g->shared, in(dir, "from/a/one"), "1", 1, 0, err));
	WANT_OK(g, garret_write(g->shared, in(dir, "from/two"), "22", 2, 0, err));
	if (garret_archive_open(g->shared, in(dir, "from"), &r, NULL) == -GARRET_UNSUPPORTED) {
		ground_skip(g, "it makes no archives");
		return;
	}
	garret_reader_close(r);
	WANT_OK(g, garret_archive_open(g->shared, in(dir, "from"), &r, err));
	WANT_OK(g, garret_unpack_open(g->shared, in(dir, "to"), &w, err));
	while ((n = garret_reader_read(r, buf, 65536, NULL)) > 0)
		if (garret_writer_write(w, buf, (size_t)n, NULL) < 0)
			break;
	garret_reader_close(r);
	WANT_OK(g, garret_writer_commit(w, err));
	WANT(g, has_bytes(g, g->shared, in(dir, "to/a/one"), "1", 1));
	WANT(g, has_bytes(g, g->shared, in(dir, "to/two"), "22", 2));
}

/* ---- giving up ---- */

static void *cancel_later(void *arg)
{
	(void)usleep(300000);
	garret_cancel(arg);
	return NULL;
}

static void check_cancel(struct ground *g, struct garret_workspace *w, struct garret_cancel *cancel)
{
	struct garret_run_options o = { .size = sizeof(o), .shell = "echo begun; sleep 300" };
	const uint64_t begun = now_ms();
	autoresult r = { 0 };
	autobytes b = { 0 };
	pthread_t thread;

	WANT(g, pthread_create(&thread, NULL, cancel_later, cancel) == 0);
	WANT_CODE(g, garret_run(w, &o, &r, err), -GARRET_CANCELLED);
	(void)pthread_join(thread, NULL);
	WANT(g, now_ms() - begun < 20000 && !strcmp((char *)r.out, "begun\n"));
	WANT_CODE(g, garret_read(w, "anything", &b, err), -GARRET_CANCELLED);
	garret_cancel_reset(cancel);
	WANT_OK(g, garret_write(w, "after", "x", 1, 0, err));
}

static void given_up_from_elsewhere(struct ground *g)
{
	struct garret_workspace *w = garret_workspace_dup(g->shared);
	struct garret_cancel *cancel = NULL;

	WANT_OK(g, garret_cancel_new(g->context, &cancel, err));
	garret_workspace_set_cancel(w, cancel);
	check_cancel(g, w, cancel);
	garret_workspace_free(w);
	garret_cancel_free(cancel);
}

/* Give a new environment up at once, and after some moments: what was made has a ref. */
static void given_up_while_it_opens(struct ground *g)
{
	for (int i = 0; i < 8 && !g->failed; i++) {
		struct garret_workspace *w = ground_fresh(g);
		struct garret_cancel *cancel = NULL;
		struct garret_error err = { 0 };
		pthread_t thread;
		int rc;

		if (!w || garret_cancel_new(g->context, &cancel, &err) < 0)
			return;
		garret_workspace_set_cancel(w, cancel);
		if (i == 0)
			garret_cancel(cancel);
		else if (pthread_create(&thread, NULL, cancel_later, cancel) == 0)
			(void)pthread_detach(thread);
		rc = garret_write(w, "file", "x", 1, 0, &err);
		if (rc < 0 && rc != -GARRET_CANCELLED)
			(void)ground_fail(g, "try %d: %s", i, err.msg);
		if (i)
			(void)usleep(400000);
		garret_cancel_reset(cancel);
		rc = garret_write(w, "file", "y", 1, 0, &err);
		if (rc < 0)
			(void)ground_fail(g, "try %d, again: %s", i, err.msg);
		garret_workspace_set_cancel(w, NULL);
		ground_drop(g, w);
		garret_cancel_free(cancel);
	}
}

/* ---- wrappers ---- */

static void read_only(struct ground *g)
{
	const char *file = in(ground_dir(g), "file");
	struct garret_workspace *w = NULL;
	struct garret_run_options o = { .size = sizeof(o), .shell = "true" };
	autoresult r = { 0 };

	WANT_OK(g, garret_write(g->shared, file, "x", 1, 0, err));
	WANT_OK(g, garret_wrap_read_only(g->shared, &w, err));
	WANT(g, garret_workspace_read_only(w) && garret_workspace_same(w, g->shared));
	WANT_CODE(g, garret_write(w, file, "y", 1, 0, err), -GARRET_READ_ONLY);
	WANT_CODE(g, garret_remove(w, file, err), -GARRET_READ_ONLY);
	WANT_CODE(g, garret_make_dir(w, in(file, "x"), err), -GARRET_READ_ONLY);
	WANT_CODE(g, garret_run(w, &o, &r, err), -GARRET_READ_ONLY);
	WANT(g, has_bytes(g, w, file, "x", 1));
	garret_workspace_free(w);
}

static void check_confined(struct ground *g, struct garret_workspace *w, const char *dir)
{
	autobytes b = { 0 };
	autolist l = { 0 };
	autofree char *back = NULL, *wd = NULL;

	WANT_OK(g, garret_write(w, in(dir, "inside"), "x", 1, 0, err));
	WANT(g, has_bytes(g, w, in(dir, "inside"), "x", 1));
	WANT_CODE(g, garret_read(w, "../outside", &b, err), -GARRET_OUTSIDE);
	WANT_CODE(g, garret_write(w, "../outside", "x", 1, 0, err), -GARRET_OUTSIDE);
	WANT_CODE(g, garret_read(w, "/etc/passwd", &b, err), -GARRET_OUTSIDE);
	WANT_CODE(g, garret_list_dir(w, "/", &l, err), -GARRET_OUTSIDE);
	WANT_CODE(g, garret_rename(w, in(dir, "inside"), "/tmp/outside", err), -GARRET_OUTSIDE);
	WANT_CODE(g, garret_make_dir(w, "/tmp/outside", err), -GARRET_OUTSIDE);
	WANT_OK(g, garret_working_dir(w, &wd, err));
	back = xasprintf("%s/%s/../%s/inside", wd[1] ? wd : "", dir, dir);
	WANT(g, has_bytes(g, w, back, "x", 1));
}

static void check_confined_links(struct ground *g, struct garret_workspace *w, const char *dir)
{
	autobytes b = { 0 };
	autoentry e = { 0 };
	char script[500];

	(void)snprintf(
		script, sizeof(script),
		"cd %s && mkdir d && printf in > d/file && ln -s /etc etc && ln -s /etc/passwd pw && "
		"ln -s \"$PWD/d\" abs && ln -s ../../.. up && ln -s d rel && ln -s d/file in && "
		"f=$(mktemp) && chmod 600 \"$f\" && ln -s \"$f\" own",
		dir);
	WANT(g, ground_says(g, g->shared, script, ""));
	WANT_CODE(g, garret_read(w, in(dir, "etc/passwd"), &b, err), -GARRET_OUTSIDE);
	WANT_CODE(g, garret_read(w, in(dir, "pw"), &b, err), -GARRET_OUTSIDE);
	WANT_CODE(g, garret_stat(w, in(dir, "pw"), &e, err), -GARRET_OUTSIDE);
	WANT_CODE(g, garret_read(w, in(dir, "up/etc/passwd"), &b, err), -GARRET_OUTSIDE);
	WANT_CODE(g, garret_write(w, in(dir, "etc/new"), "x", 1, 0, err), -GARRET_OUTSIDE);
	WANT_CODE(g, garret_write(w, in(dir, "etc/deep/new"), "x", 1, 0, err), -GARRET_OUTSIDE);
	WANT(g, has_bytes(g, w, in(dir, "abs/file"), "in", 2));
	WANT(g, has_bytes(g, w, in(dir, "rel/file"), "in", 2));
	WANT_OK(g, garret_write(w, in(dir, "abs/new"), "x", 1, 0, err));
	WANT_OK(g, garret_remove(w, in(dir, "pw"), err)); /* the link itself is inside */
	WANT_CODE(g, garret_make_dir(w, in(dir, "etc"), err), -GARRET_OUTSIDE);
	WANT_OK(g, garret_make_dir(w, in(dir, "rel"), err));
	WANT_CODE(g, garret_chmod(w, in(dir, "own"), 0644, err), -GARRET_OUTSIDE);
	WANT_OK(g, garret_chmod(w, in(dir, "in"), 0640, err));
	(void)snprintf(script, sizeof(script),
		       "cd %s && stat -L -c %%a own in && rm \"$(readlink own)\"", dir);
	WANT(g, ground_says(g, w, script, "600\n640\n"));
}

static void confined(struct ground *g)
{
	const char *dir = ground_dir(g);
	struct garret_workspace *w = NULL;
	autofree char *wd = NULL;

	WANT_OK(g, garret_working_dir(g->shared, &wd, err));
	if (!wd[1]) {
		ground_skip(g, "its working directory is /, which nothing is outside of");
		return;
	}
	WANT_OK(g, garret_wrap_confined(g->shared, &w, err));
	check_confined(g, w, dir);
	if (!g->failed && g->abilities & GARRET_HAS_COMMANDS)
		check_confined_links(g, w, dir);
	garret_workspace_free(w);
}

struct log {
	unsigned n;
	struct garret_record last;
	char path[100];
};

static void on_record(void *data, const struct garret_record *r)
{
	struct log *l = data;

	l->n++;
	l->last = *r;
	(void)snprintf(l->path, sizeof(l->path), "%s", r->path ? r->path : "");
}

static void check_recording(struct ground *g, struct garret_workspace *w, struct log *l,
			    const char *file)
{
	autobytes b = { 0 };

	WANT_OK(g, garret_write(w, file, "four", 4, 0, err));
	WANT(g, l->n == 1 && l->last.operation == GARRET_OP_WRITE && l->last.bytes == 4 &&
			l->last.code == GARRET_OK && !strcmp(l->path, file));
	WANT_CODE(g, garret_read(w, "no-such-file", &b, err), -GARRET_NOT_FOUND);
	WANT(g,
	     l->n == 2 && l->last.operation == GARRET_OP_READ && l->last.code == GARRET_NOT_FOUND);
	if (!(g->abilities & GARRET_HAS_COMMANDS))
		return;
	{
		struct garret_run_options o = { .size = sizeof(o), .shell = "exit 3" };
		autoresult r = { 0 };

		WANT_OK(g, garret_run(w, &o, &r, err));
		WANT(g, l->n == 3 && l->last.operation == GARRET_OP_RUN && l->last.exit_code == 3);
	}
}

static void recording(struct ground *g)
{
	const char *file = in(ground_dir(g), "file");
	struct garret_workspace *w = NULL;
	struct log l = { 0 };

	WANT_OK(g, garret_wrap_recording(g->shared, on_record, &l, &w, err));
	check_recording(g, w, &l, file);
	garret_workspace_free(w);
}

static void as_plain_data(struct ground *g)
{
	const char *dir = ground_dir(g);
	autofree char *request =
		xasprintf("{\"method\":\"write_bytes\",\"path\":\"%s/f\",\"data\":\"AAH/\"}", dir);
	autofree char *read = xasprintf("{\"method\":\"read_bytes\",\"path\":\"%s/f\"}", dir);
	autofree char *missing = xasprintf("{\"method\":\"stat\",\"path\":\"%s/none\"}", dir);
	autofree char *a = NULL, *b = NULL, *c = NULL, *value = NULL;

	WANT_OK(g, garret_perform(g->shared, request, &a, err));
	WANT(g, !strcmp(a, "{\"ok\":null}"));
	WANT_OK(g, garret_perform(g->shared, read, &b, err));
	WANT(g, !strcmp(b, "{\"ok\":\"AAH/\"}"));
	WANT_OK(g, garret_perform(g->shared, missing, &c, err));
	WANT_CODE(g, garret_response_read(c, &value, err), -GARRET_NOT_FOUND);
}

const struct rule more_rules[] = {
	{ "61 streams of any length", streams_of_any_length, 0, false },
	{ "62 an aborted write leaves the old", an_aborted_write_leaves_the_old, 0, false },
	{ "63 a tree as an archive", a_tree_as_an_archive, GARRET_HAS_COMMANDS, false },
	{ "64 given up from elsewhere", given_up_from_elsewhere, GARRET_HAS_COMMANDS, false },
	{ "65 given up while it opens", given_up_while_it_opens, 0, true },
	{ "66 read-only", read_only, 0, false },
	{ "67 confined", confined, GARRET_HAS_CONFINED, false },
	{ "68 recording", recording, 0, false },
	{ "69 as plain data", as_plain_data, 0, false },
	{ NULL, NULL, 0, false },
};
