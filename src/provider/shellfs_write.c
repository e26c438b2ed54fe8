/*
 * write, edit, tar_in: what has a body.
 *
 * New content goes to a temporary beside the file, which takes its place in one
 * step.  With standard input that is one command; its input ends in a mark that
 * only we know, so that a connection that broke looks like no end.  Without, the
 * content comes in arguments, a part with each command, and the last one knows
 * how much it must be.
 */
#include <nettle/sha2.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/auto.h"
#include "base/mem.h"
#include "base/text.h"
#include "proto/edit.h"
#include "provider/shellfs_impl.h"

#define RAW_ARGUMENT (SHELL_ARGUMENT_MAX / 4 * 3)
#define MOST_ARGUMENTS 16
#define INPUT_AHEAD (256u << 10) /* held here while the host takes no more */

/*
 * Arguments: 1 PATH 2 parents 3 exclusive 4 tag 5 append 6 mode 7 sync 8 temporary
 * 9 how (i: input; f, m, l, fl: the first, middle, last of several; u: unpack)
 * 10 mark or size; content.
 *
 * prep     q: the file, through links; M: the bits it has; t: the temporary
 * whole    the mark is there, and is cut off
 */
#define WRITE                                                                                       \
	"same() { x=$(stat -L -c '%i %s %y %z' \"$q\" 2>/dev/null) || { echo stat >&2; return "     \
	"118; }\n"                                                                                  \
	"[ \"$x\" = \"$1\" ] || return 112; }\n"                                                    \
	"prep() { place \"$1\"; real \"$p\" || return; q=$r M=\n"                                   \
	"if [ -L \"$q\" ]; then ls -Ld \"$q\" >/dev/null; return 1; fi\n"                           \
	"[ ! -d \"$q\" ] || return 121; d=${q%/*}; d=${d:-/}\n"                                     \
	"if [ -e \"$q\" ]; then [ -f \"$q\" ] || return 122; [ $3 = 0 ] || return 117\n"            \
	"case $4 in -|any) :;; *) same \"$4\" || return;; esac; [ -w \"$q\" ] || return 113\n"      \
	"M=$(stat -c '%u:%g %a' \"$q\" 2>/dev/null) || M=-\n"                                       \
	"else [ \"$4\" = - ] || return 112\n"                                                       \
	"if [ ! -d \"$d\" ]; then [ ! -e \"$d\" ] || return 120\n"                                  \
	"[ $2 = 1 ] || { why \"$d\"; return; }; up \"$q\" && mkdir -p \"$d\" || return; fi; fi\n"   \
	"t=${d%/}/$8; if [ $5 = 1 ]; then [ -w \"$d\" ] || t=/tmp/$8\n"                             \
	"else [ -w \"$d\" ] || return 113; fi; }\n"                                                 \
	"whole() { n=$(stat -c %s \"$t\" 2>/dev/null) || n=$(wc -c <\"$t\") || return; "            \
	"n=$((n-32))\n"                                                                             \
	"has tail || return; [ $n -ge 0 ] && [ \"$(tail -c 32 \"$t\")\" = \"$1\" ] || return 115\n" \
	"dd if=/dev/null of=\"$t\" bs=1 seek=$n; }\n"                                               \
	"flush() { [ $1 = 0 ] || sync \"$2\" 2>/dev/null || sync; }\n"                              \
	"commit() { if [ $5 = 1 ]; then o=0; [ ! -e \"$q\" ] || { s=$(stat -c \"$F\" \"$q\" "       \
	"2>/dev/null) || s=; size \"$q\" || return; o=$n; }\n"                                      \
	"cat \"$t\" >>\"$q\" || { e=$?; dd if=/dev/null of=\"$q\" bs=1 seek=$o 2>/dev/null; "       \
	"return $e; }\n"                                                                            \
	"[ -n \"$M\" ] || chmod $(um $6) \"$q\" || return; rm -f \"$t\"; flush $7 \"$q\"\n"         \
	"else if [ -z \"$M\" ]; then chmod $(um $6) \"$t\" || return\n"                             \
	"elif [ \"$M\" != - ]; then chown \"${M% *}\" \"$t\" 2>/dev/null; chmod ${M#* } \"$t\" || " \
	"return; fi\n"                                                                              \
	"flush $7 \"$t\" || return\n"                                                               \
	"case $4 in -|any) :;; *) same \"$4\" || return;; esac\n"                                   \
	"if [ $3 = 1 ]; then ln -T \"$t\" \"$q\" || return; rm -f \"$t\"\n"                         \
	"else mv -fT \"$t\" \"$q\" || return; fi; flush $7 \"$d\"; fi\n"                            \
	"look \"$q\" && printf '%s %s\\n' $k \"$s\"; }\n"

/* An old file without stat: its copy has its bits. */
static const char write_script[] = WRITE
	"w() { prep \"$@\" || return; trap 'rm -f \"$t\"; exit 143' HUP INT TERM\n"
	"case $9 in i|f*) if [ \"$M\" = - ] && [ $5 = 0 ]; then cp -p \"$q\" \"$t\" || return; fi\n"
	"(umask 077; : >\"$t\") || return;; *) [ -f \"$t\" ] || return 115;; esac\n"
	"if [ $9 = i ]; then cat >\"$t\" && whole ${10} && commit \"$@\"; return; fi\n"
	"h=$9 z=${10} g=$# i=10; while [ $i -lt $g ]; do i=$((i+1)); eval \"b=\\${$i}\"\n"
	"printf %s \"$b\" | base64 -d >>\"$t\" || return; done\n"
	"case $h in *l) n=$(wc -c <\"$t\") && [ $((n)) = $z ] || return 124; commit \"$@\";; esac; "
	"}\n"
	"m() { t=; w \"$@\"; e=$?; [ $e = 0 ] || [ -z \"$t\" ] || rm -f \"$t\"; return $e; }";

/* tar's list is counted, and its status is behind it. */
static const char untar_script[] =
	"m() { a \"$1\"; p=$v; has tar && has sed || return\n"
	"if [ ! -d \"$p\" ]; then [ ! -e \"$p\" ] || return 120; [ $2 = 1 ] || { why \"$p\"; "
	"return; }\n"
	"real \"$p\" || return; p=$r; up \"$p\" && mkdir -p \"$p\" || return; fi\n"
	"[ -w \"$p\" ] && [ -x \"$p\" ] || return 113\n"
	"c=$({ tar -xvf - -C \"$p\"; echo \"=$?\"; cat >/dev/null; } | sed -n -e '$p' -e "
	"'$=')\n"
	"printf '%s\\n' \"$c\"; }";

/* ---- the command ---- */

/* As stat prints it, in UTC. */
static void put_time(struct strbuf *out, uint64_t ns)
{
	time_t t = (time_t)(ns / 1000000000);
	char text[40] = "";
	struct tm tm;

	if (gmtime_r(&t, &tm))
		(void)strftime(text, sizeof(text), "%Y-%m-%d %H:%M:%S", &tm);
	strbuf_addf(out, " %s.%09llu +0000", text, (unsigned long long)(ns % 1000000000));
}

static void put_tag(struct strbuf *out, const struct shellfs_op *op)
{
	const struct file_tag *t = &op->tag;

	if (!op->if_tag) {
		strbuf_addstr(out, "-");
	} else if (!t->inode) {
		strbuf_addstr(out, "any");
	} else {
		strbuf_addf(out, "%llu %llu", (unsigned long long)t->inode,
			    (unsigned long long)t->size);
		put_time(out, t->mtime_ns);
		put_time(out, t->ctime_ns);
	}
}

static const char *flag(const struct shellfs_op *op, uint32_t bit)
{
	return op->rq.flags & bit ? "1" : "0";
}

static void put_place(const struct shellfs_op *op, struct script_args *a, const char *tag,
		      const char *mode)
{
	script_arg_path(a, op->rq.path);
	script_arg(a, flag(op, FILE_PARENTS));
	script_arg(a, flag(op, FILE_EXCLUSIVE));
	script_arg(a, tag);
	script_arg(a, flag(op, FILE_APPEND));
	script_arg(a, mode);
	script_arg(a, flag(op, FILE_SYNC));
	script_arg(a, op->body.temp);
}

static size_t part_bytes(const struct shellfs_op *op)
{
	size_t n = op->fs->host.arguments_bytes / SHELL_ARGUMENT_MAX;

	return (size_t)RAW_ARGUMENT * MIN(MAX(n, (size_t)1), (size_t)MOST_ARGUMENTS);
}

static void put_content(struct script_args *a, const char *data, size_t n)
{
	for (size_t at = 0; at < n; at += RAW_ARGUMENT) {
		const size_t part = MIN(n - at, (size_t)RAW_ARGUMENT);
		char *text = xmalloc(BASE64_ENCODE_RAW_LENGTH(part) + 1);

		base64_encode_raw(text, part, (const uint8_t *)data + at);
		text[BASE64_ENCODE_RAW_LENGTH(part)] = '\0';
		a->own[a->n_own++] = text;
		script_arg(a, text);
	}
}

static void start(struct shellfs_op *op, const char *how)
{
	const size_t n = MIN(op->body.data.len, part_bytes(op));
	autofree char *mode = xasprintf("%05o", op->rq.mode ? op->rq.mode : 0666);
	autobuf struct strbuf tag = STRBUF_INIT;
	struct script_args a = { .n = 0 };

	if (!op->body.begun)
		shellfs_name_temp(op);
	op->body.begun = true;
	put_tag(&tag, op);
	put_place(op, &a, tag.buf, mode);
	script_arg(&a, how);
	if (*how == 'i') {
		script_arg(&a, op->body.mark);
		shellfs_script(op, write_script, &a, true);
		return;
	}
	op->body.last = how[strlen(how) - 1] == 'l';
	op->body.sent += n;
	script_arg_number(&a, op->body.sent);
	put_content(&a, op->body.data.buf, n);
	strbuf_remove_front(&op->body.data, n);
	shellfs_script(op, write_script, &a, false);
}

/* ---- without input ---- */

static void next_part(struct shellfs_op *op)
{
	const bool full = op->body.data.len > part_bytes(op);

	if (op->script)
		return;
	/* The last one is known when the end is. */
	if (full)
		start(op, op->body.begun ? "m" : "f");
	else if (op->body.ended)
		start(op, op->body.begun ? "l" : "fl");
}

/* ---- with input ---- */

/* Gives the script what it takes; the mark comes behind all. */
static void feed(struct shellfs_op *op)
{
	while (op->script && op->body.data.len) {
		size_t n = script_input(op->script, op->body.data.buf, op->body.data.len);

		op->body.sent += n;
		strbuf_remove_front(&op->body.data, n);
		if (op->body.data.len)
			return;
	}
	if (!op->script || !op->body.ended)
		return;
	if (!op->body.marked && op->rq.op != FILE_TAR_IN) {
		op->body.marked = true;
		strbuf_add(&op->body.data, op->body.mark, INPUT_MARK);
		feed(op);
		return;
	}
	script_input_end(op->script);
}

/* ---- write ---- */

static void store_room(struct shellfs_op *op)
{
	const bool was = op->body.data.len;

	feed(op);
	if (was && !op->body.data.len && !op->body.ended)
		(void)shellfs_tell_room(op);
}

void shellfs_store(struct shellfs_op *op)
{
	if (!op->fs->host.input) {
		next_part(op);
		return;
	}
	start(op, "i");
	feed(op);
}

static void store_begin(struct shellfs_op *op)
{
	op->if_tag = op->rq.flags & FILE_IF_MATCH;
	op->tag = op->rq.tag;
	if (op->if_tag && op->rq.flags & FILE_APPEND) {
		shellfs_failf(op, GARRET_INVALID, "appending takes no conditions");
		return;
	}
	op->body.started = true;
	shellfs_store(op);
}

static void store_done(struct shellfs_op *op)
{
	autofree char *line = shellfs_line(op);
	struct file_info info;

	if (!op->fs->host.input && !op->body.last) {
		next_part(op);
		if (!op->body.ended)
			(void)shellfs_tell_room(op);
		return;
	}
	op->body.temp[0] = '\0';
	if (!line || !shellfs_parse_info(line, &info)) {
		shellfs_failf(op, GARRET_PROTOCOL, "%s: what was written can't be understood",
			      op->rq.path);
		return;
	}
	if (op->edited)
		memcpy(op->end.digest, op->digest, sizeof(op->end.digest));
	if (!shellfs_tell_info(op, &info))
		shellfs_end(op);
}

const struct shellfs_kind shellfs_write = {
	.begin = store_begin, .done = store_done, .room = store_room, .body = true
};

/* ---- edit ---- */

static int check_content(const struct shellfs_op *op, struct garret_error *err)
{
	uint8_t digest[SHA256_DIGEST_SIZE], wanted[SHA256_DIGEST_SIZE];
	struct sha256_ctx sha;

	if (!*op->rq.include)
		return 0;
	sha256_init(&sha);
	sha256_update(&sha, op->read.content.len, (const uint8_t *)op->read.content.buf);
	sha256_digest(&sha, sizeof(digest), digest);
	if (!hex_decode(op->rq.include, wanted, sizeof(wanted)))
		return garret_fail(err, GARRET_INVALID, "the digest is not 64 hex digits");
	if (memcmp(digest, wanted, sizeof(digest)) != 0)
		return garret_fail(err, GARRET_CHANGED, "%s has another content", op->rq.path);
	return 0;
}

static int apply(struct shellfs_op *op, char **text, size_t *n, struct garret_error *err)
{
	unsigned number = 0;
	struct edit e;
	struct get g;

	get_init(&g, op->edits.buf, op->edits.len);
	while (edit_next(&g, &e)) {
		size_t found;
		int rc = edit_apply(&e, text, n, EDIT_FILE_MAX, &found, err);

		number++;
		if (rc < 0) {
			op->end.count = found;
			if (number == 1 && !edit_next(&g, &e))
				return rc;
			return garret_wrap(rc, err, "edit %u", number);
		}
		op->end.count += found;
	}
	if (g.bad || !number)
		return garret_fail(err, GARRET_INVALID,
				   g.bad ? "edit %u is none, or has no old text" : "no edits",
				   number + 1);
	if (op->rq.offset && op->rq.offset != op->end.count)
		return garret_fail(
			err, GARRET_CONFLICT, "the old text is there %llu times, not %llu",
			(unsigned long long)op->end.count, (unsigned long long)op->rq.offset);
	return 0;
}

/* Is it the file that the request means? */
static int check_tag(const struct shellfs_op *op, struct garret_error *err)
{
	const struct file_tag *is = &op->read.info.tag, *wanted = &op->rq.tag;

	if (op->read.info.unknown & FILE_NO_TIMES)
		return garret_fail(err, GARRET_UNSUPPORTED,
				   "missing in the environment: stat (an edit has to see whether "
				   "the file changes meanwhile)");
	if (!(op->rq.flags & FILE_IF_MATCH) || !wanted->inode || !memcmp(is, wanted, sizeof(*is)))
		return 0;
	return garret_fail(err, GARRET_CHANGED, "%s is not what it was", op->rq.path);
}

static void edit_content(struct shellfs_op *op)
{
	struct garret_error err = { 0 };
	struct sha256_ctx sha;
	size_t n;
	char *text;
	int rc = check_tag(op, &err);

	if (rc == 0)
		rc = check_content(op, &err);
	text = strbuf_detach(&op->read.content, &n);
	if (rc == 0)
		rc = apply(op, &text, &n, &err);
	if (rc == 0) {
		sha256_init(&sha);
		sha256_update(&sha, n, (const uint8_t *)text);
		sha256_digest(&sha, sizeof(op->digest), op->digest);
		strbuf_add(&op->body.data, text, n);
	}
	free(text);
	if (rc < 0) {
		shellfs_fail(op, &err);
		return;
	}
	op->edited = op->if_tag = true;
	op->tag = op->read.info.tag;
	op->rq.flags &= ~(uint32_t)(FILE_PARENTS | FILE_EXCLUSIVE | FILE_APPEND);
	op->kind = &shellfs_write;
	shellfs_store(op);
}

static void read_for_edit(struct shellfs_op *op)
{
	op->edits = op->body.data;
	strbuf_init(&op->body.data);
	op->kind = &shellfs_edit_read;
	op->read.whole = edit_content;
	shellfs_read_begin(op);
}

/* The body first. */
static void edit_begin(struct shellfs_op *op)
{
	struct garret_error err = { 0 };

	op->body.started = true;
	if (op->body.overflow) {
		(void)garret_fail(&err, GARRET_TOO_LARGE, "edits of more than %d bytes",
				  EDIT_BODY_MAX);
		shellfs_fail_later(op, &err);
	} else if (op->body.ended) {
		read_for_edit(op);
	}
}

const struct shellfs_kind shellfs_edit = { .begin = edit_begin, .body = true };

/* ---- tar ---- */

static void untar_begin(struct shellfs_op *op)
{
	struct script_args a = { .n = 0 };

	if (!op->fs->host.input || op->rq.max_bytes) {
		shellfs_failf(op, GARRET_UNSUPPORTED,
			      op->rq.max_bytes
				      ? "a bound for the content of an archive can't be kept by tar"
				      : "an archive can't be given to commands without input");
		return;
	}
	op->body.started = true;
	script_arg_path(&a, op->rq.path);
	script_arg(&a, flag(op, FILE_PARENTS));
	shellfs_script(op, untar_script, &a, true);
	feed(op);
}

static void untar_done(struct shellfs_op *op)
{
	autofree char *status = shellfs_line(op), *lines = shellfs_line(op);
	uint64_t code = 0, n = 0;
	struct garret_error err = { 0 };

	if (!status || *status != '=' || !shellfs_numbers(status + 1, &code, 1) || !lines ||
	    !shellfs_numbers(lines, &n, 1) || !n) {
		shellfs_failf(op, GARRET_PROTOCOL, "%s: tar's answer can't be understood",
			      op->rq.path);
	} else if (code) {
		script_error((int)code, op->errors.buf, op->rq.path, &err);
		shellfs_fail(op, &err);
	} else {
		op->end.count = n - 1; /* the status is a line as well */
		shellfs_end(op);
	}
}

const struct shellfs_kind shellfs_tar_in = {
	.begin = untar_begin, .done = untar_done, .room = store_room, .body = true
};

/* ---- bodies ---- */

static size_t room_for_body(const struct shellfs_op *op)
{
	const size_t most = op->kind == &shellfs_edit ? EDIT_BODY_MAX
			    : op->fs->host.input      ? INPUT_AHEAD
						      : 2 * part_bytes(op);

	return most - MIN(most, op->body.data.len);
}

static size_t take_some(struct shellfs_op *op, const void *data, size_t n)
{
	n = MIN(n, room_for_body(op));
	strbuf_add(&op->body.data, data, n);
	if (!op->body.started || op->kind == &shellfs_edit)
		return n;
	if (op->fs->host.input)
		feed(op);
	else
		next_part(op);
	return n;
}

size_t shellfs_body(struct shellfs_op *op, const void *data, size_t n)
{
	size_t taken = 0, now = 1;

	if (!op->kind->body || op->body.ended)
		return n; /* nobody reads it any more */
	while (taken < n && now) {
		now = take_some(op, (const char *)data + taken, n - taken);
		taken += now;
	}
	if (taken == n || op->kind != &shellfs_edit)
		return taken;
	op->body.overflow = true; /* refused at its end */
	return n;
}

void shellfs_body_end(struct shellfs_op *op)
{
	if (!op->kind->body || op->body.ended)
		return;
	op->body.ended = true;
	if (!op->body.started)
		return;
	if (op->kind == &shellfs_edit)
		edit_begin(op);
	else if (op->fs->host.input)
		feed(op);
	else
		next_part(op);
}
