/*
 * One script: its text and arguments on the way there, its output on the way back.
 *
 * A script is the functions below, and a function m() that does the work.  Its
 * standard output is what m() prints and a mark with m()'s code; where output is
 * text, all of that is in base64.  A mark that is missing means that something
 * was cut off, or that a tool is missing: then the tools are asked for.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/text.h"
#include "provider/shellfs_impl.h"

#define PROBE_MS 10000

/*
 * a PATH      v: the path that an argument stands for
 * look PATH   k: d, f or o (through links); s: what stat says, or nothing
 * why PATH    the tool's words for why it can't be looked at
 * real PATH   r: all links resolved, missing parts as they are; 40 links at most
 * place PATH  p: the same without slashes behind it
 * up PATH     may missing parents be made?
 * um MODE     the mode, less what the umask takes
 * $B          a batch of a listing, for find: names, targets of links, a line for each
 */
static const char prelude[] =
	"LC_ALL=C TZ=UTC0 F='%f %u %g %i %s %y %z'; export LC_ALL TZ F\n"
	"a() { case $1 in e*) v=$(printf '%b.' \"${1#e}\"); v=${v%.};; *) v=${1#r};; esac; }\n"
	"has() { command -v \"$1\" >/dev/null 2>&1 || { echo \"$1\" >&2; return 118; }; }\n"
	"why() { ls -Ld \"$1\" >/dev/null && return 102; return 1; }\n"
	"look() { s=; if [ -d \"$1\" ]; then k=d; elif [ -f \"$1\" ]; then k=f\n"
	"elif [ -e \"$1\" ]; then k=o; else why \"$1\"; return; fi\n"
	"s=$(stat -L -c \"$F\" \"$1\" 2>/dev/null) || s=; }\n"
	"size() { case $s in *' '*) set -- $s; n=$5;; *) n=$(wc -c <\"$1\") || return; n=$((n));;"
	" esac; }\n"
	"real() { r= R=$1 N=0; while [ -n \"$R\" ]; do case $R in /*) R=${R#/}; continue;;\n"
	"*/*) c=${R%%/*} R=${R#*/};; *) c=$R R=;; esac\n"
	"case $c in ''|.) continue;; ..) r=${r%/*}; continue;; esac\n"
	"if [ -L \"$r/$c\" ] && [ $N -lt 40 ]; then N=$((N+1))\n"
	"l=$(readlink -n \"$r/$c\" && echo .) || return 1\n"
	"l=${l%.}; case $l in /*) r=;; esac; R=$l/$R; else r=$r/$c; fi; done; r=${r:-/}; }\n"
	"place() { a \"$1\"; p=$v; while case $p in ?*/) :;; *) false;; esac do p=${p%/}; done; }\n"
	"up() { u=$1; while u=${u%/*}; do u=${u:-/}\n"
	"if [ -d \"$u\" ]; then [ -w \"$u\" ] && return 0; return 113; fi\n"
	"[ -e \"$u\" ] && return 120; [ \"$u\" != / ] || return 102; done; }\n"
	"um() { printf %o $((0$1 & ~0$(umask))); }\n"
	"B='o=$1; shift; printf \"B%s %d\\n\" $o $#; printf \"%s\\0\" \"$@\"; x=\n"
	"if [ $o = L ]; then x=-L; for f do readlink -n \"$f\"; printf \"\\0\"; done; fi\n"
	"if s=$(stat $x -c \"f $F\" \"$@\" 2>/dev/null); then printf \"%s\\n\" \"$s\"\n"
	"else for f do if [ -d \"$f\" ]; then k=d; elif [ -f \"$f\" ]; then k=f\n"
	"elif [ -e \"$f\" ]; then k=o; elif [ -L \"$f\" ]; then k=x; x=; else echo -; continue; fi\n"
	"s=$(stat $x -c \"$F\" \"$f\" 2>/dev/null); printf \"%s\\n\" \"$k $s\"\n"
	"[ $o = N ] || x=-L; done; fi'\n";

static const char tail_raw[] = "\nm \"$@\"; c=$?; printf '@%03d\\n' $c; exit $c\n";
static const char tail_text[] = "\n{ m \"$@\"; printf '@%03d\\n' $?; } | base64\n";

static const char probe[] =
	"for t in base64 cat chmod cp dd find ls mkdir mv readlink rm rmdir test printf wc; do\n"
	"command -v $t >/dev/null 2>&1 || printf '%s ' $t; done; echo .\n";

/* ---- arguments ---- */

void script_arg(struct script_args *a, const char *word)
{
	a->argv[4 + a->n++] = word;
}

static void add_own(struct script_args *a, char *word)
{
	a->own[a->n_own++] = word;
	script_arg(a, word);
}

void script_arg_number(struct script_args *a, uint64_t v)
{
	add_own(a, xasprintf("%llu", (unsigned long long)v));
}

/* JSON holds no bytes that aren't UTF-8, so printf makes them there. */
void script_arg_path(struct script_args *a, const char *path)
{
	struct strbuf out = STRBUF_INIT;

	if (utf8_valid(path, strlen(path))) {
		add_own(a, xasprintf("r%s", path));
		return;
	}
	strbuf_addch(&out, 'e');
	for (const unsigned char *p = (const unsigned char *)path; *p; p++) {
		if (*p < 0x80 && *p >= ' ' && *p != '\\')
			strbuf_addch(&out, *p);
		else
			strbuf_addf(&out, "\\0%03o", *p);
	}
	add_own(a, strbuf_detach(&out, NULL));
}

void script_args_release(struct script_args *a)
{
	for (unsigned i = 0; i < a->n_own; i++)
		free(a->own[i]);
	a->n = a->n_own = 0;
}

/* ---- its life ---- */

struct script {
	struct shellfs *fs;
	struct shell_run *run;
	const struct script_events *events;
	void *ctx;
	bool *gone;
	bool probing;
	struct base64_decode_ctx base64;
	bool bad; /* not base64 */
	struct strbuf tail, errors, probed;
};

static void script_free(struct script *s)
{
	if (s->gone)
		*s->gone = true;
	strbuf_release(&s->tail);
	strbuf_release(&s->errors);
	strbuf_release(&s->probed);
	free(s);
}

/* What may be the mark stays behind. */
static void take(struct script *s, const char *data, size_t n)
{
	size_t pass;

	strbuf_add(&s->tail, data, n);
	if (s->tail.len <= SCRIPT_MARK)
		return;
	pass = s->tail.len - SCRIPT_MARK;
	if (s->events->data) {
		bool gone = false;

		s->gone = &gone;
		s->events->data(s->ctx, s->tail.buf, pass);
		if (gone)
			return;
		s->gone = NULL;
	}
	strbuf_remove_front(&s->tail, pass);
}

static void take_text(struct script *s, const char *data, size_t n)
{
	char *out = xmalloc(BASE64_DECODE_LENGTH(n) + 1);
	size_t done = BASE64_DECODE_LENGTH(n) + 1;

	if (base64_decode_update(&s->base64, &done, (uint8_t *)out, n, data))
		take(s, out, done);
	else
		s->bad = true;
	free(out);
}

static void on_out(void *ctx, int stream, const void *data, size_t n)
{
	struct script *s = ctx;

	if (stream || s->probing) {
		struct strbuf *to = stream ? &s->errors : &s->probed;

		strbuf_add(to, data, MIN(n, SCRIPT_ERROR_MAX - MIN(to->len, SCRIPT_ERROR_MAX)));
	} else if (s->fs->host.raw) {
		take(s, data, n);
	} else if (!s->bad) {
		take_text(s, data, n);
	}
}

static void on_room(void *ctx)
{
	struct script *s = ctx;

	if (s->events->room)
		s->events->room(s->ctx);
}

static void finish(struct script *s, int code, const struct garret_error *err)
{
	const struct script_events *events = s->events;
	struct strbuf errors = s->errors;
	void *ctx = s->ctx;

	strbuf_init(&s->errors);
	script_free(s);
	events->end(ctx, code, errors.buf, err);
	strbuf_release(&errors);
}

static bool marked(const struct script *s, int *ret)
{
	const char *p = s->tail.buf;

	if (s->bad || s->tail.len != SCRIPT_MARK || p[0] != '@' || p[4] != '\n')
		return false;
	for (int i = 1; i < 4; i++)
		if (p[i] < '0' || p[i] > '9')
			return false;
	*ret = (p[1] - '0') * 100 + (p[2] - '0') * 10 + p[3] - '0';
	return true;
}

static const struct shell_events shell_events;

/* The output is damaged: is a tool missing? */
static void ask_for_tools(struct script *s)
{
	const char *const argv[] = { "/bin/sh", "-c", probe, "sh", NULL };
	const struct shell_command cmd = { .argv = argv, .timeout_ms = PROBE_MS };
	struct garret_error err = { 0 };

	s->probing = true;
	s->run = s->fs->host.run(s->fs->host.ctx, &cmd, &shell_events, s, &err);
	if (!s->run)
		finish(s, 0, &err);
}

static void tell_tools(struct script *s, int code, const struct garret_error *why)
{
	struct garret_error err = { 0 };
	char *dot = strrchr(s->probed.buf, '.');

	if (why)
		err = *why;
	else if (code || !dot)
		(void)garret_fail(&err, GARRET_UNSUPPORTED,
				  "file operations need a POSIX shell, and /bin/sh doesn't work "
				  "here: %.200s",
				  s->errors.buf);
	else if (dot == s->probed.buf)
		(void)garret_fail(&err, GARRET_PROTOCOL,
				  "the output of a command arrived damaged%s%.200s",
				  s->errors.len ? ": " : "", s->errors.buf);
	else
		(void)garret_fail(
			&err, GARRET_UNSUPPORTED,
			"missing in the environment: %.*s; install coreutils and findutils",
			(int)(dot - s->probed.buf - 1), s->probed.buf);
	finish(s, 0, &err);
}

static void on_end(void *ctx, int exit_code, const struct garret_error *err)
{
	struct script *s = ctx;
	int code = 0;

	s->run = NULL;
	if (s->probing)
		tell_tools(s, exit_code, err);
	else if (err)
		finish(s, 0, err);
	else if (marked(s, &code))
		finish(s, code, NULL);
	else
		ask_for_tools(s);
}

static const struct shell_events shell_events = { on_out, on_room, on_end };

struct script *script_start(struct shellfs *fs, const char *body, const struct script_args *a,
			    bool input, uint32_t timeout_ms, const struct script_events *events,
			    void *ctx, struct garret_error *err)
{
	char *text = xasprintf("%s%s%s", prelude, body, fs->host.raw ? tail_raw : tail_text);
	struct script_args args = *a;
	const struct shell_command cmd = { .argv = args.argv,
					   .input = input,
					   .timeout_ms = timeout_ms };
	struct script *s = xnew(struct script);

	args.argv[0] = "/bin/sh";
	args.argv[1] = "-c";
	args.argv[2] = text;
	args.argv[3] = "sh";
	args.argv[4 + args.n] = NULL;
	s->fs = fs;
	s->events = events;
	s->ctx = ctx;
	base64_decode_init(&s->base64);
	strbuf_init(&s->tail);
	strbuf_init(&s->errors);
	strbuf_init(&s->probed);
	s->run = fs->host.run(fs->host.ctx, &cmd, &shell_events, s, err);
	free(text);
	if (s->run)
		return s;
	script_free(s);
	return NULL;
}

size_t script_input(struct script *s, const void *data, size_t n)
{
	return s->run && !s->probing ? s->fs->host.input_more(s->run, data, n) : n;
}

void script_input_end(struct script *s)
{
	if (s->run && !s->probing)
		s->fs->host.input_end(s->run);
}

void script_pause(struct script *s, bool pause)
{
	if (s->run && s->fs->host.pause)
		s->fs->host.pause(s->run, pause);
}

void script_cancel(struct script *s)
{
	if (s->run)
		s->fs->host.cancel(s->run);
	script_free(s);
}

/* ---- errors ---- */

/* What glibc, musl and busybox say, where a line ends in it. */
static const struct {
	const char *text;
	int sys;
} reasons[] = {
	{ "No such file or directory", ENOENT },
	{ "Permission denied", EACCES },
	{ "Operation not permitted", EPERM },
	{ "Read-only file system", EROFS },
	{ "File exists", EEXIST },
	{ "Not a directory", ENOTDIR },
	{ "Is a directory", EISDIR },
	{ "No space left on device", ENOSPC },
	{ "Disk quota exceeded", EDQUOT },
	{ "Quota exceeded", EDQUOT },
	{ "File name too long", ENAMETOOLONG },
	{ "Filename too long", ENAMETOOLONG },
	{ "Too many levels of symbolic links", ELOOP },
	{ "Symbolic link loop", ELOOP },
	{ "Directory not empty", ENOTEMPTY },
	{ "Device or resource busy", EBUSY },
	{ "Resource busy", EBUSY },
	{ "Text file busy", ETXTBSY },
	{ "File too large", EFBIG },
	{ "Input/output error", EIO },
	{ "I/O error", EIO },
	{ "Cannot allocate memory", ENOMEM },
	{ "Out of memory", ENOMEM },
};

static int reason_of(const char *line, size_t n)
{
	for (size_t i = 0; i < ARRAY_SIZE(reasons); i++) {
		const size_t m = strlen(reasons[i].text);

		/* Behind a colon: a file may be called so. */
		if (n > m + 2 && !memcmp(line + n - m, reasons[i].text, m) &&
		    !memcmp(line + n - m - 2, ": ", 2))
			return reasons[i].sys;
	}
	return 0;
}

static void tool_error(int code, const char *errors, const char *path, struct garret_error *err)
{
	for (const char *line = errors; *line;) {
		size_t n = strcspn(line, "\n");
		int sys = reason_of(line, n);

		if (sys) {
			errno = sys;
			(void)garret_fail_errno(err, "%s", path);
			return;
		}
		line += n + (line[n] == '\n');
	}
	(void)garret_fail(err, code == 127 ? GARRET_UNSUPPORTED : GARRET_INTERNAL,
			  "%s: %.300s (exit status %d)", path,
			  *errors ? errors : "a tool failed without a word", code);
}

/* Its name is the last that was said. */
static void no_tool(const char *errors, struct garret_error *err)
{
	size_t end = strlen(errors), at;

	while (end && errors[end - 1] == '\n')
		end--;
	for (at = end; at && errors[at - 1] != '\n'; at--)
		;
	(void)garret_fail(err, GARRET_UNSUPPORTED, "missing in the environment: %.*s",
			  (int)MIN(end - at, (size_t)200), errors + at);
}

void script_error(int code, const char *errors, const char *path, struct garret_error *err)
{
	static const struct {
		int code, sys;
	} system[] = {
		{ SCRIPT_NOT_FOUND, ENOENT },    { SCRIPT_DENIED, EACCES },
		{ SCRIPT_EXISTS, EEXIST },       { SCRIPT_NOT_DIRECTORY, ENOTDIR },
		{ SCRIPT_IS_DIRECTORY, EISDIR },
	};

	for (size_t i = 0; i < ARRAY_SIZE(system); i++) {
		if (system[i].code != code)
			continue;
		errno = system[i].sys;
		(void)garret_fail_errno(err, "%s", path);
		return;
	}
	switch (code) {
	case SCRIPT_CHANGED:
		(void)garret_fail(err, GARRET_CHANGED, "%s is not what it was", path);
		return;
	case SCRIPT_TOO_LARGE:
		(void)garret_fail(err, GARRET_TOO_LARGE, "%s is larger than the limit", path);
		return;
	case SCRIPT_CUT_OFF:
		(void)garret_fail(err, GARRET_UNAVAILABLE, "the transfer to %s was cut off", path);
		return;
	case SCRIPT_SIZE:
		(void)garret_fail(err, GARRET_UNAVAILABLE,
				  "%s: what was stored is not what was sent; nothing was replaced",
				  path);
		return;
	case SCRIPT_PATTERN:
		(void)garret_fail(err, GARRET_INVALID, "the pattern is wrong: %.*s",
				  (int)strcspn(errors, "\n"), errors);
		return;
	case SCRIPT_NO_TOOL:
		no_tool(errors, err);
		return;
	case SCRIPT_WORK_DIR:
		(void)garret_fail(err, GARRET_INVALID,
				  "the work directory and what holds it can't be removed: %s",
				  path);
		return;
	case SCRIPT_NOT_REGULAR:
		(void)garret_fail(err, GARRET_NOT_REGULAR, "%s", path);
		return;
	case SCRIPT_INTO_ITSELF:
		(void)garret_fail(err, GARRET_INVALID, "%s can't be copied into itself", path);
		return;
	default:
		tool_error(code, errors, path, err);
	}
}
