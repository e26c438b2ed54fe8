/*
 * shellfs against shells and tools that are there: dash and bash with coreutils, busybox with
 * its own; with and without input, with raw output and with text.
 */
#include "test.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/mem.h"
#include "base/strbuf.h"
#include "base/time.h"
#include "proto/cursor.h"
#include "shell_local.h"

static struct loop *loop;
static struct local local;
static struct shellfs *fs;
static char dir[64], busybox[80], work[80];

/* ---- one operation ---- */

static struct {
	bool ended;
	int code;
	struct garret_error err;
	struct file_info info;
	unsigned infos, entries, matches;
	struct strbuf data, names;
	struct file_end end;
	char path[8192], target[4096];
	/* the body */
	struct shellfs_op *op;
	const char *body;
	size_t body_bytes, body_at;
	bool no_end;
} got;

static void on_info(void *ctx, const struct file_info *info)
{
	(void)ctx;
	got.info = *info;
	(void)snprintf(got.target, sizeof(got.target), "%s", info->target);
	got.infos++;
}

static void on_entry(void *ctx, const struct file_info *info)
{
	static const char letters[] = "fdox";

	(void)ctx;
	got.entries++;
	strbuf_addf(&got.names, "%s%c%s", got.names.len ? " " : "", letters[info->type],
		    info->link ? "l" : "");
	if (info->type == FILE_REGULAR && !(info->unknown & FILE_NO_SIZE))
		strbuf_addf(&got.names, "%llu", (unsigned long long)info->tag.size);
	strbuf_addf(&got.names, ":%s", info->name);
	if (*info->target)
		strbuf_addf(&got.names, ">%s", info->target);
}

static void on_match(void *ctx, const struct file_match *m)
{
	(void)ctx;
	got.matches++;
	strbuf_addf(&got.names, "%s%s:%llu:%u+%u:%.*s", got.names.len ? "|" : "", m->name,
		    (unsigned long long)m->line, m->column, m->length, (int)m->text_bytes,
		    (const char *)m->text);
}

static void on_data(void *ctx, const void *data, size_t n)
{
	(void)ctx;
	strbuf_add(&got.data, data, n);
}

static void give(void)
{
	while (got.body_at < got.body_bytes) {
		size_t n = shellfs_body(got.op, got.body + got.body_at,
					MIN(got.body_bytes - got.body_at, (size_t)100000));

		got.body_at += n;
		if (!n)
			return;
	}
	if (!got.no_end)
		shellfs_body_end(got.op);
}

static void on_room(void *ctx)
{
	(void)ctx;
	if (got.body_at < got.body_bytes)
		give();
}

static void on_end(void *ctx, const struct file_end *end, const struct garret_error *err)
{
	(void)ctx;
	assert_false(got.ended);
	got.ended = true;
	got.op = NULL;
	got.end = *end;
	(void)snprintf(got.path, sizeof(got.path), "%s", end->path);
	if (err)
		got.err = *err;
	got.code = err ? (int)err->code : 0;
	loop_quit(loop, 0);
}

static const struct file_events events = { on_info, on_entry, on_match, on_data, on_room, on_end };

static void forget(void)
{
	strbuf_release(&got.data);
	strbuf_release(&got.names);
	memset(&got, 0, sizeof(got));
	strbuf_init(&got.data);
	strbuf_init(&got.names);
}

static void begin(struct file_request rq, const char *body, size_t n)
{
	if (!rq.length)
		rq.length = UINT64_MAX;
	forget();
	got.body = body;
	got.body_bytes = n;
	got.op = shellfs_file(fs, &rq, &events, NULL, &got.err);
	if (!got.op) {
		got.ended = true;
		got.code = (int)got.err.code;
		return;
	}
	if (body)
		give();
}

/* One round of the loop, or 10 ms. */
static void on_tick(struct loop_timer *t)
{
	loop_quit(t->ctx, 0);
}

static void loop_step(void)
{
	struct loop_timer tick = { .ctx = loop };

	loop_timer_set(loop, &tick, now_ms() + 5, on_tick, loop);
	(void)loop_run(loop);
	loop_timer_clear(&tick);
}

static int run_body(struct file_request rq, const char *body, size_t n)
{
	begin(rq, body, n);
	if (!got.ended)
		(void)loop_run(loop);
	assert_true(got.ended);
	if (got.code && getenv("SHELLFS_VERBOSE"))
		print_message("op %d %s: %s\n", rq.op, rq.path, got.err.msg);
	return got.code;
}

static int run(struct file_request rq)
{
	return run_body(rq, NULL, 0);
}

static void assert_says(const char *text)
{
	if (!strstr(got.err.msg, text))
		print_error("\"%s\" is not in \"%s\"\n", text, got.err.msg);
	assert_non_null(strstr(got.err.msg, text));
}

static const char *in(const char *name)
{
	static char names[4][4200];
	static unsigned turn;
	char *s = names[turn++ % 4];

	(void)snprintf(s, sizeof(names[0]), "%s/%s", work, name);
	return s;
}

#define OP(o, name, ...) ((struct file_request){ .op = (o), .path = in(name), __VA_ARGS__ })

/* ---- the ground ---- */

static void put_n(const char *name, const char *text, size_t n)
{
	autoclose int fd = open(in(name), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	assert_true(fd >= 0);
	assert_int_equal(write_full(fd, text, n), 0);
}

static void put(const char *name, const char *text)
{
	put_n(name, text, strlen(text));
}

static char *get_n(const char *name, size_t *ret)
{
	autoclose int fd = open(in(name), O_RDONLY | O_CLOEXEC);
	struct stat st;
	char *s;

	if (fd < 0 || fstat(fd, &st) < 0)
		return NULL;
	s = xcalloc(1, (size_t)st.st_size + 1);
	*ret = (size_t)read_full(fd, s, (size_t)st.st_size);
	return s;
}

static void assert_file(const char *name, const char *text)
{
	size_t n = 0;
	autofree char *s = get_n(name, &n);

	assert_non_null(s);
	assert_int_equal(n, strlen(text));
	assert_memory_equal(s, text, n);
}

static mode_t mode_of(const char *name)
{
	struct stat st;

	return lstat(in(name), &st) < 0 ? 0 : st.st_mode & 07777;
}

/* Names that begin as temporaries do, below the work directory. */
static unsigned temporaries(const char *where)
{
	DIR *d = opendir(where);
	struct dirent *e;
	unsigned n = 0;

	while (d && (e = readdir(d))) {
		autofree char *below = xasprintf("%s/%s", where, e->d_name);

		if (!strncmp(e->d_name, ".garret-", 8))
			n++;
		if (e->d_type == DT_DIR && strcmp(e->d_name, ".") && strcmp(e->d_name, ".."))
			n += temporaries(below);
	}
	if (d)
		(void)closedir(d);
	return n;
}

static void fresh(void)
{
	int parent = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	(void)remove_tree_at(parent, "work");
	assert_int_equal(mkdirat(parent, "work", 0777), 0);
	assert_int_equal(fchmodat(parent, "work", 0777, 0), 0);
	fd_close(parent);
}

static void setup_busybox(void)
{
	char *const argv[] = { (char *)(uintptr_t) "busybox", (char *)(uintptr_t) "--install",
			       (char *)(uintptr_t) "-s", busybox, NULL };
	int status;
	pid_t pid;

	assert_int_equal(mkdir(busybox, 0755), 0);
	assert_int_equal(posix_spawn(&pid, "/bin/busybox", NULL, NULL, argv, environ), 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

struct variant {
	const char *name, *shell, *path;
	bool input, raw;
	size_t arguments;
};

static void open_variant(const struct variant *v)
{
	struct garret_error err = { 0 };

	(void)snprintf(dir, sizeof(dir), "/tmp/shellfs-XXXXXX");
	assert_non_null(mkdtemp(dir));
	assert_int_equal(chmod(dir, 0755), 0);
	(void)snprintf(work, sizeof(work), "%s/work", dir);
	(void)snprintf(busybox, sizeof(busybox), "%s/bin", dir);
	assert_int_equal(loop_new(&loop, &err), 0);
	local_init(&local, loop, work);
	assert_int_not_equal(geteuid(), 0);
	local.shell = v->shell;
	local.path = v->path ? v->path : busybox;
	if (!v->path)
		setup_busybox();
	local.host.input = v->input;
	local.host.raw = v->raw;
	local.host.arguments_bytes = v->arguments;
	fs = shellfs_new(&local.host);
	fresh();
}

static void close_variant(void)
{
	struct garret_error why = { .code = GARRET_GONE, .msg = "closed" };
	int parent = open("/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	fs = shellfs_free(fs, &why);
	assert_int_equal(local.running, 0);
	loop = loop_free(loop);
	forget();
	(void)remove_tree_at(parent, dir + 5);
	fd_close(parent);
}

/* ---- what everybody must be able to do ---- */

static void check_looks(void)
{
	put("file", "1234");
	put("bad\xff\n name\n", "x");
	assert_int_equal(mkdir(in("d"), 0750), 0);
	put("d/inside", "abc");
	assert_int_equal(symlink("d", in("to-d")), 0);
	assert_int_equal(symlink("file", in("to-file")), 0);
	assert_int_equal(symlink("nowhere", in("to-none")), 0);
	assert_int_equal(symlink("loop", in("loop")), 0);
	assert_int_equal(mkfifo(in("fifo"), 0600), 0);

	assert_int_equal(run(OP(FILE_STAT, "file")), 0);
	assert_int_equal(got.info.type, FILE_REGULAR);
	assert_int_equal(got.info.tag.size, 4);
	assert_int_equal(got.info.mode, 0644);
	assert_int_equal(got.info.unknown, 0);
	assert_true(got.info.tag.mtime_ns > 1500000000ull * 1000000000);
	assert_int_equal(run(OP(FILE_STAT, "bad\xff\n name\n")), 0);
	assert_int_equal(got.info.tag.size, 1);
	assert_int_equal(run(OP(FILE_STAT, "to-d")), 0);
	assert_int_equal(got.info.type, FILE_DIRECTORY);
	assert_int_equal(run(OP(FILE_STAT, "fifo")), 0);
	assert_int_equal(got.info.type, FILE_OTHER);
	assert_int_equal(run(OP(FILE_STAT, "to-none")), GARRET_NOT_FOUND);
	assert_int_equal(run(OP(FILE_STAT, "to-none", .flags = FILE_NOFOLLOW)), 0);
	assert_int_equal(got.info.link, 1);
	assert_string_equal(got.target, "nowhere");
	assert_int_equal(run(OP(FILE_STAT, "absent")), GARRET_NOT_FOUND);
	assert_int_equal(got.err.sys, ENOENT);
	assert_int_equal(run(OP(FILE_STAT, "file/below")), GARRET_NOT_DIRECTORY);
	assert_int_equal(run(OP(FILE_STAT, "loop")), GARRET_INVALID);
	assert_int_equal(got.err.sys, ELOOP);

	assert_int_equal(run(OP(FILE_LIST, "")), 0);
	assert_string_equal(got.names.buf,
			    "f1:bad\xff\n name\n d:d o:fifo f4:file xl:loop>loop dl:to-d>d "
			    "f"
			    "l4:to-file>file xl:to-none>nowhere");
	assert_int_equal(run(OP(FILE_LIST, "", .flags = FILE_NOFOLLOW | FILE_DIRS_FIRST)), 0);
	assert_string_equal(got.names.buf, "d:d f1:bad\xff\n name\n o:fifo f4:file");
	assert_int_equal(run(OP(FILE_LIST, "", .max_entries = 2)), 0);
	assert_int_equal(got.entries, 2);
	assert_int_equal(got.end.truncated, 1);
	assert_int_equal(run(OP(FILE_LIST, "d")), 0);
	assert_int_equal(got.end.truncated, 0);
	assert_int_equal(run(OP(FILE_LIST, "to-d")), 0);
	assert_string_equal(got.names.buf, "f3:inside");
	assert_int_equal(run(OP(FILE_LIST, "file")), GARRET_NOT_DIRECTORY);
	assert_int_equal(run(OP(FILE_LIST, "absent")), GARRET_NOT_FOUND);

	assert_int_equal(mkdir(in("d/deep"), 0755), 0);
	put("d/deep/er", "");
	put("d.x", "");
	assert_int_equal(run(OP(FILE_WALK, "", .flags = FILE_NOFOLLOW)), 0);
	assert_string_equal(got.names.buf, "f1:bad\xff\n name\n d:d f0:d.x o:fifo f4:file d:d/deep "
					   "f3:d/inside f0:d/deep/er");
	assert_int_equal(got.end.truncated, 0);
	assert_int_equal(run(OP(FILE_WALK, "", .max_depth = 2, .flags = FILE_NOFOLLOW)), 0);
	assert_int_equal(got.entries, 7);
	assert_int_equal(got.end.truncated, 1);
}

static void real_is(const char *name, const char *wanted)
{
	assert_int_equal(run(OP(FILE_REALPATH, name)), 0);
	assert_string_equal(got.path, in(wanted));
}

static void check_realpath(void)
{
	assert_int_equal(mkdir(in("d"), 0755), 0);
	assert_int_equal(mkdir(in("d/e"), 0755), 0);
	assert_int_equal(symlink("d/e", in("l")), 0);
	assert_int_equal(symlink("../missing/x", in("d/m")), 0);
	assert_int_equal(symlink(in("d"), in("abs\n")), 0);
	assert_int_equal(symlink("b", in("a")), 0);
	assert_int_equal(symlink("a", in("b")), 0);
	real_is("l/..", "d");
	real_is("l/../../none/y", "none/y");
	real_is("d/m/z", "missing/x/z");
	real_is("abs\n/e", "d/e");
	real_is("line\n\n", "line\n\n");
	real_is("x\xff/./y//z/", "x\xff/y/z");
	assert_int_equal(run(OP(FILE_REALPATH, "a/x")), 0);
	assert_memory_equal(got.path, work, strlen(work));
	assert_int_equal(run((struct file_request){ .op = FILE_REALPATH, .path = "/../.." }), 0);
	assert_string_equal(got.path, "/");
}

static void check_reads(void)
{
	const size_t n = 200000;
	autofree char *big = xmalloc(n);

	for (size_t i = 0; i < n; i++)
		big[i] = (char)(i * 7 + i / 251);
	put_n("big", big, n);
	put("small", "0123456789");
	put("empty", "");
	assert_int_equal(mkfifo(in("fifo"), 0600), 0);
	assert_int_equal(mkdir(in("d"), 0755), 0);

	assert_int_equal(run(OP(FILE_READ, "big")), 0);
	assert_int_equal(got.infos, 1);
	assert_int_equal(got.info.tag.size, n);
	assert_int_equal(got.data.len, n);
	assert_memory_equal(got.data.buf, big, n);
	for (unsigned i = 0; i < 6; i++) {
		const uint64_t at[] = { 0, 1, 65535, 65536, 131073, 199999 };
		const uint64_t want = MIN((uint64_t)70000, n - at[i]);

		assert_int_equal(run(OP(FILE_READ, "big", .offset = at[i], .length = 70000)), 0);
		assert_int_equal(got.data.len, want);
		assert_memory_equal(got.data.buf, big + at[i], want);
	}
	assert_int_equal(run(OP(FILE_READ, "small", .offset = 50)), 0);
	assert_int_equal(got.data.len, 0);
	assert_int_equal(got.info.tag.size, 10);
	assert_int_equal(run(OP(FILE_READ, "small", .length = 3, .flags = FILE_FROM_END)), 0);
	assert_string_equal(got.data.buf, "789");
	assert_int_equal(run(OP(FILE_READ, "small", .length = 30, .flags = FILE_FROM_END)), 0);
	assert_string_equal(got.data.buf, "0123456789");
	assert_int_equal(run(OP(FILE_READ, "small", .flags = FILE_FROM_END)), 0);
	assert_int_equal(got.data.len, 10);
	assert_int_equal(run(OP(FILE_READ, "empty")), 0);
	assert_int_equal(got.infos, 1);
	assert_int_equal(got.data.len, 0);
	assert_int_equal(run(OP(FILE_READ, "small", .max_bytes = 9)), GARRET_TOO_LARGE);
	assert_int_equal(run(OP(FILE_READ, "small", .max_bytes = 10)), 0);
	assert_int_equal(run(OP(FILE_READ, "d")), GARRET_IS_DIRECTORY);
	assert_int_equal(run(OP(FILE_READ, "fifo")), GARRET_NOT_REGULAR);
	assert_int_equal(run(OP(FILE_READ, "absent")), GARRET_NOT_FOUND);
	assert_int_equal(run((struct file_request){ .op = FILE_READ,
						    .path = "/proc/self/status",
						    .length = UINT64_MAX }),
			 0);
	assert_true(got.data.len > 200);
	assert_int_equal(got.info.tag.size, got.data.len);

	put("text", "\xEF\xBB\xBFone\r\ntwo\xC2\x85three\n\nfive");
	assert_int_equal(run(OP(FILE_TEXT, "text", .offset = 1, .length = 3)), 0);
	assert_string_equal(got.data.buf, "two\nthree\n");
	assert_int_equal(got.end.count, 5);
	put("latin", "caf\xe9\n");
	assert_int_equal(run(OP(FILE_TEXT, "latin")), GARRET_INVALID);
	assert_int_equal(run(OP(FILE_TEXT, "latin", .flags = FILE_LATIN)), 0);
	assert_string_equal(got.data.buf, "caf\xC3\xA9");

	assert_int_equal(run(OP(FILE_DIGEST, "small")), 0);
	assert_memory_equal(got.end.digest, "\x84\xd8\x98\x77\xf0\xd4\x04\x1e", 8);
	assert_int_equal(got.info.tag.size, 10);
	assert_int_equal(run(OP(FILE_DIGEST, "d")), GARRET_IS_DIRECTORY);
}

static int write_text(const char *name, uint32_t flags, const char *text)
{
	return run_body(OP(FILE_WRITE, name, .flags = flags), text, strlen(text));
}

static void check_writes(void)
{
	const size_t n = 300001;
	autofree char *big = xmalloc(n);
	autofree char *back = NULL;
	struct file_tag tag;
	size_t m;

	for (size_t i = 0; i < n; i++)
		big[i] = (char)(i * 13 + i / 509);
	assert_int_equal(run_body(OP(FILE_WRITE, "big"), big, n), 0);
	assert_int_equal(got.info.tag.size, n);
	back = get_n("big", &m);
	assert_int_equal(m, n);
	assert_memory_equal(back, big, n);

	assert_int_equal(write_text("file", 0, "hello"), 0);
	assert_file("file", "hello");
	assert_int_equal(mode_of("file"), 0644);
	tag = got.info.tag;
	assert_int_equal(write_text("file", 0, ""), 0);
	assert_file("file", "");
	assert_int_equal(write_text("no/such/dir", 0, "x"), GARRET_NOT_FOUND);
	assert_int_equal(write_text("new\n/\xff\xfe/x y", FILE_PARENTS, "deep"), 0);
	assert_file("new\n/\xff\xfe/x y", "deep");
	assert_int_equal(write_text("file/x", FILE_PARENTS, "x"), GARRET_NOT_DIRECTORY);
	assert_int_equal(write_text("file/x/y", FILE_PARENTS, "x"), GARRET_NOT_DIRECTORY);
	assert_int_equal(write_text("new\n", 0, "x"), GARRET_IS_DIRECTORY);
	assert_int_equal(mkfifo(in("fifo"), 0600), 0);
	assert_int_equal(write_text("fifo", 0, "x"), GARRET_NOT_REGULAR);

	/* Bits of an old file are kept, those of a new one are asked for. */
	assert_int_equal(chmod(in("file"), 0751), 0);
	assert_int_equal(write_text("file", 0, "again"), 0);
	assert_int_equal(mode_of("file"), 0751);
	assert_int_equal(run_body(OP(FILE_WRITE, "exe", .mode = 0755), "x", 1), 0);
	assert_int_equal(mode_of("exe"), 0755);

	/* Through links. */
	assert_int_equal(symlink("file", in("l1")), 0);
	assert_int_equal(symlink("l1", in("l2")), 0);
	assert_int_equal(write_text("l2", 0, "via"), 0);
	assert_file("file", "via");
	assert_int_equal(run(OP(FILE_STAT, "l2", .flags = FILE_NOFOLLOW)), 0);
	assert_int_equal(got.info.link, 1);
	assert_int_equal(symlink("made/there", in("l3")), 0);
	assert_int_equal(write_text("l3", FILE_PARENTS, "far"), 0);
	assert_file("made/there", "far");
	assert_int_equal(symlink("self", in("self")), 0);
	assert_int_equal(write_text("self", 0, "x"), GARRET_INVALID);

	/* Conditions. */
	assert_int_equal(write_text("file", FILE_EXCLUSIVE, "x"), GARRET_EXISTS);
	assert_int_equal(write_text("only", FILE_EXCLUSIVE, "first"), 0);
	assert_file("only", "first");
	assert_int_equal(
		run_body(OP(FILE_WRITE, "file", .flags = FILE_IF_MATCH, .tag = tag), "x", 1),
		GARRET_CHANGED);
	assert_int_equal(run(OP(FILE_STAT, "file")), 0);
	tag = got.info.tag;
	assert_int_equal(
		run_body(OP(FILE_WRITE, "file", .flags = FILE_IF_MATCH, .tag = tag), "y", 1), 0);
	assert_file("file", "y");
	assert_int_equal(run_body(OP(FILE_WRITE, "file", .flags = FILE_IF_MATCH), "z", 1), 0);
	assert_int_equal(run_body(OP(FILE_WRITE, "none", .flags = FILE_IF_MATCH), "z", 1),
			 GARRET_CHANGED);

	assert_int_equal(write_text("log", FILE_APPEND, "one\n"), 0);
	assert_int_equal(write_text("log", FILE_APPEND | FILE_SYNC, "two\n"), 0);
	assert_file("log", "one\ntwo\n");
	assert_int_equal(got.info.tag.size, 8);
	assert_int_equal(run_body(OP(FILE_WRITE, "log", .flags = FILE_APPEND), big, n), 0);
	assert_int_equal(got.info.tag.size, 8 + n);
	assert_int_equal(write_text("synced", FILE_SYNC, "s"), 0);
	assert_int_equal(temporaries(work), 0);
}

static void check_changes(void)
{
	put("f", "F");
	assert_int_equal(run(OP(FILE_MKDIR, "a/b")), GARRET_NOT_FOUND);
	assert_int_equal(run(OP(FILE_MKDIR, "a/b/\xff c", .flags = FILE_PARENTS)), 0);
	assert_int_equal(run(OP(FILE_MKDIR, "a/b", .flags = FILE_PARENTS)), 0);
	assert_int_equal(run(OP(FILE_MKDIR, "a/b")), GARRET_EXISTS);
	assert_int_equal(run(OP(FILE_MKDIR, "f", .flags = FILE_PARENTS)), GARRET_EXISTS);
	assert_int_equal(run(OP(FILE_MKDIR, "f/x", .flags = FILE_PARENTS)), GARRET_NOT_DIRECTORY);
	assert_int_equal(run(OP(FILE_MKDIR, "m", .mode = 0700)), 0);
	assert_int_equal(mode_of("m"), 0700);
	assert_int_equal(mode_of("a"), 0755);

	assert_int_equal(run(OP(FILE_RENAME, "f", .to = in("a/g"))), 0);
	assert_file("a/g", "F");
	put("f", "F2");
	assert_int_equal(run(OP(FILE_RENAME, "f", .to = in("a/g"), .flags = FILE_EXCLUSIVE)),
			 GARRET_EXISTS);
	assert_int_equal(run(OP(FILE_RENAME, "f", .to = in("a/g"))), 0);
	assert_file("a/g", "F2");
	assert_int_equal(run(OP(FILE_RENAME, "a/g", .to = in("p/q/r"))), GARRET_NOT_FOUND);
	assert_int_equal(run(OP(FILE_RENAME, "a/g", .to = in("p/q/r"),
				.flags = FILE_PARENTS | FILE_EXCLUSIVE)),
			 0);
	assert_file("p/q/r", "F2");
	assert_int_equal(run(OP(FILE_RENAME, "p/q/r", .to = in("a"))), GARRET_IS_DIRECTORY);
	assert_int_equal(run(OP(FILE_RENAME, "a", .to = in("p/q/r"))), GARRET_NOT_DIRECTORY);
	assert_int_equal(run(OP(FILE_RENAME, "a", .to = in("a2"), .flags = FILE_EXCLUSIVE)), 0);
	assert_int_equal(mode_of("a2/b"), 0755);
	assert_int_equal(run(OP(FILE_RENAME, "m", .to = in("a2"))), GARRET_CONFLICT);
	assert_int_equal(run(OP(FILE_RENAME, "absent", .to = in("x"))), GARRET_NOT_FOUND);

	assert_int_equal(symlink("p/q/r", in("l")), 0);
	assert_int_equal(run(OP(FILE_COPY, "l", .to = in("copy"))), 0);
	assert_file("copy", "F2");
	assert_int_equal(run(OP(FILE_COPY, "l", .to = in("copy"), .flags = FILE_EXCLUSIVE)),
			 GARRET_EXISTS);
	assert_int_equal(run(OP(FILE_COPY, "p", .to = in("copy2"))), GARRET_IS_DIRECTORY);
	assert_int_equal(
		run(OP(FILE_COPY, "p", .to = in("tree/p"), .flags = FILE_TREE | FILE_PARENTS)), 0);
	assert_file("tree/p/q/r", "F2");
	assert_int_equal(run(OP(FILE_COPY, "l", .to = in("l-copy"), .flags = FILE_TREE)), 0);
	assert_int_equal(run(OP(FILE_STAT, "l-copy", .flags = FILE_NOFOLLOW)), 0);
	assert_int_equal(got.info.link, 1);
	assert_int_equal(run(OP(FILE_COPY, "p", .to = in("p/q/inner"), .flags = FILE_TREE)),
			 GARRET_INVALID);
	assert_int_equal(run(OP(FILE_COPY, "absent", .to = in("x"))), GARRET_NOT_FOUND);

	assert_int_equal(run(OP(FILE_CHMOD, "copy", .mode = 0600)), 0);
	assert_int_equal(mode_of("copy"), 0600);
	assert_int_equal(run(OP(FILE_CHMOD, "tree", .mode = 0700, .flags = FILE_TREE)), 0);
	assert_int_equal(mode_of("tree/p/q/r"), 0700);
	assert_int_equal(run(OP(FILE_CHMOD, "absent", .mode = 0700)), GARRET_NOT_FOUND);

	assert_int_equal(run(OP(FILE_REMOVE, "l")), 0);
	assert_file("p/q/r", "F2");
	assert_int_equal(run(OP(FILE_REMOVE, "tree")), GARRET_CONFLICT);
	assert_int_equal(run(OP(FILE_REMOVE, "tree", .flags = FILE_TREE)), 0);
	assert_int_equal(run(OP(FILE_REMOVE, "tree", .flags = FILE_TREE)), GARRET_NOT_FOUND);
	assert_int_equal(symlink("nothing", in("dangling")), 0);
	assert_int_equal(run(OP(FILE_REMOVE, "dangling", .flags = FILE_TREE)), 0);
	put("odd\n\xff", "");
	assert_int_equal(run(OP(FILE_REMOVE, "odd\n\xff")), 0);
	assert_int_equal(symlink(".", in("here")), 0);
	for (unsigned i = 0; i < 5; i++) {
		static const char *const kept[] = { "", ".", "here/.", "..", "p/.." };

		assert_int_equal(run(OP(FILE_REMOVE, kept[i], .flags = FILE_TREE)), GARRET_INVALID);
	}
	assert_int_equal(
		run((struct file_request){ .op = FILE_REMOVE, .flags = FILE_TREE, .path = "/" }),
		GARRET_INVALID);
	assert_int_equal(run(OP(FILE_RENAME, ".", .to = in("x"))), GARRET_INVALID);
	assert_file("p/q/r", "F2");
	assert_int_equal(temporaries(work), 0);
}

static void put_edit(struct strbuf *out, bool all, const char *old, const char *new)
{
	const char *const texts[] = { old, new };

	strbuf_addch(out, all);
	for (int i = 0; i < 2; i++) {
		uint8_t length[4];
		struct put p;

		put_init(&p, length, sizeof(length));
		put_u32(&p, (uint32_t)strlen(texts[i]));
		strbuf_add(out, length, sizeof(length));
		strbuf_addstr(out, texts[i]);
	}
}

static void check_edits(void)
{
	autobuf struct strbuf body = STRBUF_INIT;

	put("code", "a\r\nb\xff\na\n");
	put_edit(&body, true, "a", "x");
	assert_int_equal(run_body(OP(FILE_EDIT, "code"), body.buf, body.len), 0);
	assert_file("code", "x\r\nb\xff\nx\n");
	assert_int_equal(got.end.count, 2);
	strbuf_reset(&body);
	put_edit(&body, false, "x", "y");
	assert_int_equal(run_body(OP(FILE_EDIT, "code"), body.buf, body.len), GARRET_CONFLICT);
	assert_int_equal(got.end.count, 2);
	assert_file("code", "x\r\nb\xff\nx\n");
	assert_int_equal(run_body(OP(FILE_EDIT, "absent"), body.buf, body.len), GARRET_NOT_FOUND);
	assert_int_equal(run_body(OP(FILE_EDIT, "code", .offset = 3), body.buf, body.len),
			 GARRET_CONFLICT);
	assert_int_equal(temporaries(work), 0);
}

static void check_archives(void)
{
	autofree char *tar = NULL;
	size_t n;

	assert_int_equal(mkdir(in("d"), 0755), 0);
	put("d/one", "1");
	put("d/two", "22");
	if (!local.host.input) {
		assert_int_equal(run_body(OP(FILE_TAR_IN, "out"), "", 0), GARRET_UNSUPPORTED);
		return;
	}
	assert_int_equal(run(OP(FILE_TAR_OUT, "d")), 0);
	tar = strbuf_detach(&got.data, &n);
	assert_true(n >= 1024);
	assert_int_equal(run_body(OP(FILE_TAR_IN, "out"), tar, n), GARRET_NOT_FOUND);
	assert_int_equal(run_body(OP(FILE_TAR_IN, "out", .flags = FILE_PARENTS), tar, n), 0);
	assert_file("out/two", "22");
	assert_int_equal(got.end.count, 3);
	assert_int_not_equal(run_body(OP(FILE_TAR_IN, "out"),
				      "not an archive, but more than a block"
				      "........................................",
				      70),
			     0);
	assert_int_equal(run_body(OP(FILE_TAR_IN, "out", .max_bytes = 10), tar, n),
			 GARRET_UNSUPPORTED);
}

static void make_tree(void)
{
	static const char *const dirs[] = {
		"repo",         "repo/.git",    "repo/src",          "repo/src/deep",
		"repo/src/out", "repo/.hidden", "repo/node_modules", "repo/node_modules/x"
	};

	for (size_t i = 0; i < ARRAY_SIZE(dirs); i++)
		assert_int_equal(mkdir(in(dirs[i]), 0755), 0);
	put("repo/.gitignore", "node_modules/\n*.log\n");
	put("repo/src/.gitignore", "/out\n!keep.log\n");
	put("repo/node_modules/.gitignore", "!*\n");
	put("repo/a.c", "alpha\nbeta alpha\r\nALPHA\n");
	put("repo/src/b.c", "x alpha [alpha]\n");
	put("repo/src/deep/c \xff\n.h", "no\nlast alpha");
	put("repo/src/x.log", "alpha");
	put("repo/src/keep.log", "alpha");
	put("repo/src/out/o.c", "alpha");
	put("repo/.hidden/h.c", "alpha");
	put("repo/.git/g.c", "alpha");
	put("repo/node_modules/x/n.c", "alpha");
	put_n("repo/bin", "alpha\0\n", 7);
	put("repo/-dash", "alpha-beta");
	assert_int_equal(symlink("a.c", in("repo/link.c")), 0);
	assert_int_equal(symlink("src", in("repo/dirlink.c")), 0);
}

static void glob_is(const char *root, const char *pattern, uint32_t flags, const char *wanted)
{
	assert_int_equal(run(OP(FILE_GLOB, root, .pattern = pattern, .flags = flags)), 0);
	assert_string_equal(got.names.buf, wanted);
}

static void grep_is(const char *root, const char *pattern, uint32_t flags, const char *include,
		    const char *wanted)
{
	assert_int_equal(
		run(OP(FILE_GREP, root, .pattern = pattern, .flags = flags, .include = include)),
		0);
	assert_string_equal(got.names.buf, wanted);
}

static void check_searches(void)
{
	make_tree();
	glob_is("repo", "*.c", 0, "f24:a.c fl24:link.c>a.c f16:src/b.c");
	glob_is("repo", "*.c", FILE_NOFOLLOW, "f24:a.c f16:src/b.c");
	glob_is("repo", "*.c", FILE_HIDDEN, "f5:.hidden/h.c f24:a.c fl24:link.c>a.c f16:src/b.c");
	glob_is("repo", "**/*.c", FILE_NO_IGNORE,
		"f24:a.c fl24:link.c>a.c f5:node_modules/x/n.c f16:src/b.c f5:src/out/o.c");
	glob_is("repo", "src/**", 0, "f16:src/b.c f13:src/deep/c \xff\n.h f5:src/keep.log");
	glob_is("repo", "*", FILE_DIRS_TOO,
		"f10:-dash f24:a.c f7:bin dl:dirlink.c>src fl24:link.c>a.c d:src f16:src/b.c d:src/deep "
		"f13:src/deep/c \xff\n.h f5:src/keep.log");
	glob_is("repo/src", "*.{log,c}", 0, "f16:b.c f5:keep.log");
	assert_int_equal(run(OP(FILE_GLOB, "repo", .pattern = "*.c", .max_entries = 2)), 0);
	assert_int_equal(got.entries, 2);
	assert_int_equal(got.end.truncated, 1);
	assert_int_equal(run(OP(FILE_GLOB, "repo/a.c", .pattern = "*")), GARRET_NOT_DIRECTORY);
	assert_int_equal(run(OP(FILE_GLOB, "absent", .pattern = "*")), GARRET_NOT_FOUND);
	assert_int_equal(run(OP(FILE_GLOB, "repo", .pattern = "[")), GARRET_INVALID);

	grep_is("repo", "alpha", 0, NULL,
		"-dash:1:1+5:alpha-beta|a.c:1:1+5:alpha|a.c:2:6+5:beta alpha|src/b.c:1:3+5:x alpha [alpha]|"
		"src/b.c:1:10+5:x alpha [alpha]|src/deep/c \xff\n.h:2:6+5:last alpha|src/keep.log:1:1+5:alpha");
	assert_int_equal(got.end.skipped, 1);
	grep_is("repo", "[alpha]", FILE_FIXED, NULL, "src/b.c:1:9+7:x alpha [alpha]");
	grep_is("repo", "alpha", FILE_NO_CASE | FILE_FIXED, "a.c",
		"a.c:1:1+5:alpha|a.c:2:6+5:beta alpha|a.c:3:1+5:ALPHA");
	grep_is("repo/src/b.c", "alpha", 0, NULL, ":1:3+5:x alpha [alpha]|:1:10+5:x alpha [alpha]");
	grep_is("repo/bin", "alpha", 0, NULL, ":1:1+5:alpha?");
	grep_is("repo", "nowhere", 0, NULL, "");
	assert_int_equal(run(OP(FILE_GREP, "repo", .pattern = "alpha", .max_entries = 2)), 0);
	assert_int_equal(got.matches, 2);
	assert_int_equal(got.end.truncated, 1);
	assert_int_equal(run(OP(FILE_GREP, "absent", .pattern = "x")), GARRET_NOT_FOUND);
	assert_int_equal(run(OP(FILE_GREP, "repo", .pattern = "\xC3\xA9",
				.flags = FILE_NO_CASE | FILE_FIXED)),
			 GARRET_UNSUPPORTED);
	if (strstr(local.shell, "busybox")) {
		assert_int_equal(run(OP(FILE_GREP, "repo", .pattern = "a.pha")),
				 GARRET_UNSUPPORTED);
		assert_says("grep -P");
		return;
	}
	grep_is("repo", "\\b(a.p)ha\\b(?= |$)", 0, "*.[ch]",
		"a.c:1:1+5:alpha|src/b.c:1:3+5:x alpha [alpha]|src/deep/c \xff\n.h:2:6+5:last alpha");
	assert_int_equal(run(OP(FILE_GREP, "repo", .pattern = "(")), GARRET_INVALID);
}

static const struct variant variants[] = {
	{ "dash, input, raw", "/bin/dash", "/usr/bin:/bin", true, true, 0 },
	{ "dash, text", "/bin/dash", "/usr/bin:/bin", false, false, 0 },
	{ "bash, input, text", "/bin/bash", "/usr/bin:/bin", true, false, 0 },
	{ "busybox, input, raw", "/bin/busybox", NULL, true, true, 0 },
	{ "busybox, text, longer commands", "/bin/busybox", NULL, false, false, 4 * 65536 },
};

static void on_all(void (*fn)(void))
{
	for (size_t i = 0; i < ARRAY_SIZE(variants); i++) {
		print_message("  %s\n", variants[i].name);
		open_variant(&variants[i]);
		fn();
		close_variant();
	}
}

TEST(looks_say_what_is_there)
{
	on_all(check_looks);
}

TEST(realpath_follows_every_link_and_keeps_what_is_missing)
{
	on_all(check_realpath);
}

TEST(reads_give_exactly_the_bytes_asked_for)
{
	on_all(check_reads);
}

TEST(writes_replace_at_once)
{
	on_all(check_writes);
}

TEST(changes_do_what_they_say)
{
	on_all(check_changes);
}

TEST(edits_are_exact)
{
	on_all(check_edits);
}

TEST(archives_go_both_ways)
{
	on_all(check_archives);
}

TEST(searches_mean_what_they_mean_everywhere)
{
	on_all(check_searches);
}

static void check_permissions(void)
{
	put("closed", "old");
	assert_int_equal(chmod(in("closed"), 0), 0);
	assert_int_equal(run(OP(FILE_READ, "closed")), GARRET_DENIED);
	assert_int_equal(run(OP(FILE_STAT, "closed")), 0);
	assert_int_equal(run(OP(FILE_STAT, "closed", .flags = FILE_READABLE)), GARRET_DENIED);
	assert_int_equal(write_text("closed", 0, "x"), GARRET_DENIED);
	assert_int_equal(mkdir(in("d"), 0755), 0);
	put("d/f", "old");
	assert_int_equal(chmod(in("d"), 0555), 0);
	assert_int_equal(write_text("d/f", 0, "x"), GARRET_DENIED);
	assert_int_equal(write_text("d/n", 0, "x"), GARRET_DENIED);
	assert_int_equal(write_text("d/n/m", FILE_PARENTS, "x"), GARRET_DENIED);
	assert_int_equal(write_text("d/f", FILE_APPEND, "er"), 0);
	assert_file("d/f", "older");
	assert_int_equal(run(OP(FILE_MKDIR, "d/n", .flags = FILE_PARENTS)), GARRET_DENIED);
	assert_int_equal(run(OP(FILE_REMOVE, "d/f")), GARRET_DENIED);
	assert_int_equal(run(OP(FILE_RENAME, "d/f", .to = in("f"))), GARRET_DENIED);
	assert_int_equal(chmod(in("d"), 0), 0);
	assert_int_equal(run(OP(FILE_LIST, "d")), GARRET_DENIED);
	assert_int_equal(run(OP(FILE_READ, "d/f")), GARRET_DENIED);
	assert_int_equal(run(OP(FILE_WALK, "")), 0);
	assert_int_equal(got.end.skipped, 1);
	assert_int_equal(got.end.truncated, 1);
	assert_int_equal(chmod(in("d"), 0755), 0);
	assert_int_equal(temporaries(work), 0);
}

TEST(permissions_are_the_users)
{
	on_all(check_permissions);
}

/* ---- how many commands ---- */

static void check_count(unsigned most)
{
	if (local.commands > most)
		print_error("%u commands, not %u\n", local.commands, most);
	assert_true(local.commands <= most);
}

static void check_large(void)
{
	const size_t n = 8 << 20, part = 49152 * MAX(1, local.host.arguments_bytes / 65536);
	autofree char *big = xmalloc(n);
	autofree char *back = NULL;
	size_t m;

	for (size_t i = 0; i < n; i++)
		big[i] = (char)(i * 11 + i / 1021);
	local.commands = 0;
	assert_int_equal(run_body(OP(FILE_WRITE, "big"), big, n), 0);
	check_count(local.host.input ? 1 : (unsigned)((n + part - 1) / part));
	back = get_n("big", &m);
	assert_int_equal(m, n);
	assert_memory_equal(back, big, n);
	local.commands = 0;
	assert_int_equal(run(OP(FILE_READ, "big")), 0);
	check_count(1);
	assert_int_equal(got.data.len, n);
	assert_memory_equal(got.data.buf, big, n);

	local.host.output_max = 0;
	local.commands = 0;
	assert_int_equal(write_text("small", FILE_PARENTS, "s"), 0);
	check_count(1);
	local.commands = 0;
	assert_int_equal(run(OP(FILE_LIST, "")), 0);
	check_count(1);
	local.commands = 0;
	assert_int_equal(run(OP(FILE_REMOVE, "small")), 0);
	check_count(1);
}

TEST(a_read_or_a_write_is_one_command)
{
	on_all(check_large);
}

static void change_big(unsigned number)
{
	if (number == 3)
		put("big", "other");
}

TEST(bounded_output_is_read_in_parts_of_one_file)
{
	const struct variant text = { "", "/bin/dash", "/usr/bin:/bin", false, false, 0 };
	const size_t n = 3 << 20;
	autofree char *big = xmalloc(n);

	for (size_t i = 0; i < n; i++)
		big[i] = (char)(i * 5 + i / 257);
	open_variant(&text);
	fs = shellfs_free(fs, NULL);
	local.host.output_max = 1 << 20;
	fs = shellfs_new(&local.host);
	put_n("big", big, n);
	local.commands = 0;
	assert_int_equal(run(OP(FILE_READ, "big", .offset = 5)), 0);
	assert_int_equal(got.data.len, n - 5);
	assert_memory_equal(got.data.buf, big + 5, n - 5);
	assert_int_equal(got.infos, 1);
	check_count(6);
	/* It grows behind the first part. */
	local.commands = 0;
	local.before = change_big;
	assert_int_equal(run(OP(FILE_READ, "big")), GARRET_CHANGED);
	close_variant();
}

/* ---- mishaps ---- */

static void check_mishaps(void)
{
	char *text = xmalloc(200000);

	memset(text, 'x', 200000);
	put("file", "old");
	/* The output breaks off. */
	for (size_t n = 0; n < 9; n += 4) {
		local.commands = 0;
		local.cut_at = 1;
		local.cut_bytes = n;
		assert_int_equal(run(OP(FILE_READ, "file")), GARRET_PROTOCOL);
		assert_int_equal(run(OP(FILE_READ, "file")), 0);
	}
	local.cut_at = 0;
	/* What looks like the end of the input isn't. */
	for (unsigned append = 0; local.host.input && append < 2; append++) {
		local.commands = 0;
		local.cut_input_at = 1;
		assert_int_equal(run_body(OP(FILE_WRITE, "file", .flags = append ? FILE_APPEND : 0),
					  text, 200000),
				 GARRET_UNAVAILABLE);
		local.cut_input_at = 0;
		assert_file("file", "old");
		assert_int_equal(temporaries(work), 0);
	}
	/* The connection breaks, or the environment ends, under each command of a write. */
	for (unsigned i = 1; i < 6; i++) {
		local.commands = 0;
		local.fail_at = i;
		(void)run_body(OP(FILE_WRITE, "file"), text, 200000);
		if (local.host.input && i > 1)
			break;
		assert_int_equal(got.code, i <= local.commands ? GARRET_UNAVAILABLE : 0);
		assert_int_equal(temporaries(work), 0);
		if (got.code)
			assert_file("file", "old");
	}
	local.fail_at = 0;
	put("file", "old");
	local.commands = 0;
	local.gone_at = 1;
	assert_int_equal(run_body(OP(FILE_WRITE, "file"), text, 200000), GARRET_GONE);
	assert_int_equal(local.commands, 1);
	assert_file("file", "old");
	local.gone_at = 0;
	free(text);
}

TEST(what_breaks_off_leaves_the_old_file)
{
	on_all(check_mishaps);
}

static void settle(void)
{
	for (unsigned i = 0; i < 500 && local.running; i++)
		loop_step();
	assert_int_equal(local.running, 0);
}

/* Given up after each round of the loop; without an end it can only be given up. */
static void check_cancel(void)
{
	char *text = xmalloc(150000);

	memset(text, 'y', 150000);
	put("file", "old");
	local.input_piece = 20000;
	for (unsigned rounds = 0; rounds < 40; rounds += 1 + rounds / 3) {
		begin(OP(FILE_WRITE, "file"), NULL, 0);
		got.no_end = true;
		got.body = text;
		got.body_bytes = 150000;
		give();
		for (unsigned i = 0; i < rounds && !got.ended; i++)
			loop_step();
		assert_false(got.ended);
		shellfs_leave(got.op);
		settle();
		assert_file("file", "old");
		assert_int_equal(temporaries(work), 0);
	}
	for (unsigned rounds = 0; rounds < 4; rounds++) {
		begin(OP(FILE_READ, "file"), NULL, 0);
		for (unsigned i = 0; i < rounds; i++)
			loop_step();
		if (!got.ended)
			shellfs_leave(got.op);
		settle();
	}
	free(text);
}

TEST(giving_up_at_any_moment_leaves_nothing)
{
	on_all(check_cancel);
}

TEST(missing_tools_are_named)
{
	const struct variant none = { "", "/bin/dash", "/nonexistent", true, false, 0 };
	const struct variant no_shell = { "", "/bin/false", "/usr/bin:/bin", true, true, 0 };

	open_variant(&none);
	put("file", "x");
	assert_int_equal(run(OP(FILE_READ, "file")), GARRET_UNSUPPORTED);
	assert_says("base64 cat chmod cp dd");
	assert_says("install coreutils and findutils");
	close_variant();
	open_variant(&no_shell);
	assert_int_equal(run(OP(FILE_READ, "file")), GARRET_UNSUPPORTED);
	assert_says("POSIX shell");
	close_variant();
}

static void link_tools(const char *const *tools)
{
	for (; *tools; tools++) {
		autofree char *from = xasprintf("/usr/bin/%s", *tools);
		autofree char *to = xasprintf("%s/%s", dir, *tools);

		assert_int_equal(symlink(from, to), 0);
	}
}

/* The tools that the contract asks for, and nothing more. */
TEST(without_stat_sizes_are_counted_or_unknown)
{
	static const char *const tools[] = { "base64", "cat",   "chmod", "cp",       "dd", "find",
					     "ls",     "mkdir", "mv",    "readlink", "rm", "rmdir",
					     "wc",     "sh",    "tail",  NULL };
	const struct variant few = { "", "/bin/dash", "", true, false, 0 };

	open_variant(&few);
	local.path = dir;
	link_tools(tools);
	put("file", "12345");
	assert_int_equal(symlink("file", in("l")), 0);
	assert_int_equal(run(OP(FILE_STAT, "file")), 0);
	assert_int_equal(got.info.tag.size, 5);
	assert_int_equal(got.info.unknown, FILE_NO_MODE | FILE_NO_TIMES);
	assert_int_equal(run(OP(FILE_LIST, "")), 0);
	assert_string_equal(got.names.buf, "f:file fl:l>file");
	assert_int_equal(run(OP(FILE_READ, "file")), 0);
	assert_string_equal(got.data.buf, "12345");
	assert_int_equal(chmod(in("file"), 0755), 0);
	assert_int_equal(write_text("file", 0, "new"), 0);
	assert_file("file", "new");
	assert_int_equal(mode_of("file"), 0755);
	assert_int_equal(write_text("file", FILE_APPEND, "er"), 0);
	assert_file("file", "newer");
	assert_int_equal(
		run_body(OP(FILE_WRITE, "file", .flags = FILE_IF_MATCH, .tag = { 1, 2, 3, 4 }), "x",
			 1),
		GARRET_UNSUPPORTED);
	assert_says("stat");
	assert_int_equal(run(OP(FILE_DIGEST, "file")), GARRET_UNSUPPORTED);
	assert_says("sha256sum");
	assert_int_equal(temporaries(work), 0);
	close_variant();
}

TEST(a_closed_host_ends_what_goes_on)
{
	const struct variant v = { "", "/bin/dash", "/usr/bin:/bin", true, true, 0 };
	struct garret_error why = { .code = GARRET_GONE, .msg = "closed" };

	open_variant(&v);
	begin(OP(FILE_WRITE, "file"), "abc", 3);
	loop_step();
	fs = shellfs_free(fs, &why);
	assert_true(got.ended);
	assert_int_equal(got.code, GARRET_GONE);
	close_variant();
}

/*
 * As an ordinary user: permissions are to be felt, and what these scripts would do to the
 * root if they were wrong is not.
 */
int main(void)
{
	if (geteuid() == 0 && (setgroups(0, NULL) < 0 || setresgid(65534, 65534, 65534) < 0 ||
			       setresuid(65534, 65534, 65534) < 0)) {
		perror("become nobody");
		return 1;
	}
	(void)umask(022);
	return _cmocka_run_group_tests(__FILE__, __start_garret_tests,
				       (size_t)(__stop_garret_tests - __start_garret_tests), NULL,
				       NULL);
}
