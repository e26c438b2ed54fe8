/*
 * read, text, tar_out.
 *
 * A read is one command, or where a command's output is bounded one for each
 * part; then every part must be of the same file as the first.  dd counts in
 * blocks, so that what it prints begins and ends a little beside what is wanted:
 * the rest is dropped here, and what is missing is an error.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/lines.h"
#include "base/mem.h"
#include "provider/shellfs_impl.h"

#define UNSIZED_MAX (1u << 20) /* of a file of /proc that doesn't say its size */
#define TEXT_MAX (64u << 20)
#define WHOLE UINT64_MAX
#define HEAD_MAX 4096

/* Of so many bytes of output how many can be content? */
static uint64_t part_max(const struct shellfs_op *op)
{
	const struct shell_host *host = &op->fs->host;
	uint64_t n = host->output_max;

	if (!n)
		return 0;
	n -= MIN(n / 2, 2ull * 65536 + HEAD_MAX); /* whole blocks, the head */
	return MAX(host->raw ? n : n / 77 * 57, 65536ull);
}

static const char read_script[] =
	"m() { a \"$1\"; p=$v; look \"$p\" || return; case $k in d) return 121;; o) return 122;; "
	"esac\n"
	"[ -r \"$p\" ] || return 113; size \"$p\" || return\n"
	"if [ $4 != 0 ] && [ $n -gt $4 ]; then echo \"File is $n bytes, over the $4-byte read "
	"limit\" >&2; return 114; fi\n"
	"if [ $n = 0 ]; then printf 'u %s\\n' \"$s\"; dd if=\"$p\" bs=4096 count=256; return; fi\n"
	"o=$2; if [ $o = - ]; then o=$((n-$3)); [ $o -ge 0 ] || o=0; fi; [ $o -le $n ] || o=$n\n"
	"c=$((n-o)); [ $3 = - ] || [ $c -le $3 ] || c=$3; w=$c; [ $5 = 0 ] || [ $c -le $5 ] || "
	"c=$5\n"
	"printf 'f %s\\n%s %s %s %s\\n' \"$s\" $n $o $c $w; [ $c = 0 ] || dd if=\"$p\" bs=65536 "
	"skip=$((o/65536)) count=$(((o+c+65535)/65536-o/65536)); }";

/* The shell's numbers are signed. */
static void arg_number_or(struct script_args *a, uint64_t v, const char *otherwise)
{
	if (v > INT64_MAX / 2)
		script_arg(a, otherwise);
	else
		script_arg_number(a, v);
}

static void read_part(struct shellfs_op *op)
{
	const bool from_end = op->read.at == WHOLE;
	struct script_args a = { .n = 0 };

	script_arg_path(&a, op->rq.path);
	if (from_end)
		script_arg(&a, "-");
	else
		script_arg_number(&a, MIN(op->read.at, (uint64_t)INT64_MAX / 2));
	/* All of it, from the end, is all of it. */
	arg_number_or(&a, op->read.left, from_end ? "4611686018427387903" : "-");
	script_arg_number(&a, MIN(op->rq.max_bytes, (uint64_t)INT64_MAX / 2));
	script_arg_number(&a, part_max(op));
	op->read.stage = 0;
	shellfs_script(op, read_script, &a, false);
}

void shellfs_read_begin(struct shellfs_op *op)
{
	op->read.at = op->rq.flags & FILE_FROM_END ? WHOLE : op->rq.offset;
	op->read.left = op->rq.length;
	if (op->read.whole) {
		op->read.at = 0;
		op->read.left = WHOLE;
		op->rq.max_bytes =
			op->rq.max_bytes ? MIN(op->rq.max_bytes, (uint64_t)TEXT_MAX) : TEXT_MAX;
	}
	read_part(op);
}

static void damaged(struct shellfs_op *op)
{
	shellfs_failf(op, GARRET_PROTOCOL, "%s: what was read can't be understood", op->rq.path);
}

static bool same_file(const struct file_info *a, const struct file_info *b)
{
	return !memcmp(&a->tag, &b->tag, sizeof(a->tag));
}

/* The second line: size, offset, bytes of this part, bytes wanted from there on. */
static bool take_range(struct shellfs_op *op, const char *line)
{
	uint64_t v[4], n, at, part, wanted;

	if (!shellfs_numbers(line, v, 4))
		return false;
	n = v[0];
	at = v[1];
	part = v[2];
	wanted = v[3];
	if (at > n || wanted > n - at || part > wanted)
		return false;
	op->read.info.tag.size = n;
	op->read.info.unknown &= (uint8_t)~FILE_NO_SIZE;
	op->read.at = at;
	op->read.left = wanted - part; /* for the commands after this one */
	op->read.skip = at % 65536;
	op->read.due = part;
	op->read.got = 0;
	return true;
}

/* The head, as far as it has come; false: the operation is gone. */
static bool take_head(struct shellfs_op *op)
{
	const struct file_info before = op->read.info;

	while (op->read.stage < 2) {
		autofree char *line = shellfs_line(op);

		if (!line && op->out.len > HEAD_MAX) {
			damaged(op);
			return false;
		}
		if (!line)
			return true;
		if (op->read.stage == 0) {
			op->read.unsized = *line == 'u';
			if (op->read.unsized)
				*line = 'f';
			if (!shellfs_parse_info(line, &op->read.info)) {
				damaged(op);
				return false;
			}
			op->read.stage = op->read.unsized ? 2 : 1;
			continue;
		}
		if (!take_range(op, line)) {
			damaged(op);
			return false;
		}
		op->read.stage = 2;
		if (op->read.told && !same_file(&before, &op->read.info)) {
			shellfs_failf(op, GARRET_CHANGED, "%s changed while it was read",
				      op->rq.path);
			return false;
		}
		if (!op->read.told && !op->read.whole && shellfs_tell_info(op, &op->read.info))
			return false;
		op->read.told = true;
	}
	return true;
}

static void take_bytes(struct shellfs_op *op, const char *data, size_t n)
{
	size_t drop = (size_t)MIN((uint64_t)n, op->read.skip);

	op->read.skip -= drop;
	data += drop;
	n = (size_t)MIN((uint64_t)(n - drop), op->read.due - op->read.got);
	op->read.got += n;
	if (op->read.whole)
		strbuf_add(&op->read.content, data, n);
	else
		(void)shellfs_tell_data(op, data, n);
}

static void read_data(struct shellfs_op *op, const char *data, size_t n)
{
	if (op->read.stage == 2 && !op->read.unsized) {
		take_bytes(op, data, n);
		return;
	}
	strbuf_add(&op->out, data, n);
	if (op->read.stage < 2 && !take_head(op))
		return;
	if (op->read.stage < 2 || op->read.unsized || !op->out.len)
		return;
	/* What came behind the head in one piece. */
	data = op->out.buf;
	n = op->out.len;
	strbuf_init(&op->out);
	take_bytes(op, data, n);
	if (n)
		free((char *)(uintptr_t)data);
}

/* A file that doesn't say its size is what could be read of it. */
static void tell_unsized(struct shellfs_op *op)
{
	const uint64_t n = op->out.len;
	uint64_t from = op->rq.flags & FILE_FROM_END ? n - MIN(n, op->rq.length) : op->rq.offset;
	struct strbuf out = op->out;

	strbuf_init(&op->out);
	op->read.info.tag.size = n;
	op->read.info.unknown &= (uint8_t)~FILE_NO_SIZE;
	from = MIN(from, n);
	if (op->read.whole) {
		op->read.content = out;
		op->read.whole(op);
		return;
	}
	if (!shellfs_tell_info(op, &op->read.info) &&
	    !shellfs_tell_data(op, out.buf + from, (size_t)MIN(op->rq.length, n - from)))
		shellfs_end(op);
	strbuf_release(&out);
}

static void read_done(struct shellfs_op *op)
{
	if (op->read.stage != 2) {
		damaged(op);
	} else if (op->read.unsized) {
		tell_unsized(op);
	} else if (op->read.got < op->read.due) {
		shellfs_failf(op, GARRET_CHANGED, "%s shrank while it was read", op->rq.path);
	} else if (op->read.left) {
		op->read.at += op->read.due;
		read_part(op);
	} else if (op->read.whole) {
		op->read.whole(op);
	} else {
		shellfs_end(op);
	}
}

const struct shellfs_kind shellfs_read = { .begin = shellfs_read_begin,
					   .data = read_data,
					   .done = read_done };

const struct shellfs_kind shellfs_edit_read = {
	.begin = shellfs_read_begin, .data = read_data, .done = read_done, .body = true
};

/* ---- text ---- */

static void tell_lines(struct shellfs_op *op)
{
	const uint64_t from = op->rq.offset, length = op->rq.length;
	autobuf struct strbuf out = STRBUF_INIT;
	const uint8_t *line;
	struct lines t;
	size_t n;

	lines_init(&t, op->read.content.buf, op->read.content.len);
	if (t.latin && !(op->rq.flags & FILE_LATIN)) {
		shellfs_failf(op, GARRET_INVALID, "[Binary File]");
		return;
	}
	for (; lines_next(&t, &line, &n); op->end.count++) {
		if (op->end.count < from || op->end.count - from >= length)
			continue;
		if (op->end.count > from)
			strbuf_addch(&out, '\n');
		lines_put(&t, &out, line, n);
	}
	if (!shellfs_tell_data(op, out.buf, out.len))
		shellfs_end(op);
}

static void text_begin(struct shellfs_op *op)
{
	op->read.whole = tell_lines;
	shellfs_read_begin(op);
}

const struct shellfs_kind shellfs_text = { .begin = text_begin,
					   .data = read_data,
					   .done = read_done };

/* ---- tar ---- */

static const char tar_script[] =
	"m() { a \"$1\"; p=$v; look \"$p\" || return; has tar || return; case $k in o) return "
	"122;; esac\n"
	"[ -r \"$p\" ] || return 113\n"
	"if [ $k = d ]; then [ -x \"$p\" ] || return 113; cd -P \"$p\" && tar -cf - .\n"
	"else place \"$1\"; d=${p%/*}; cd -P \"${d:-/}\" && tar -chf - \"./${p##*/}\"; fi; }";

static void tar_begin(struct shellfs_op *op)
{
	struct script_args a = { .n = 0 };

	if (op->fs->host.output_max) {
		shellfs_failf(op, GARRET_UNSUPPORTED,
			      "an archive can't be read from a host that bounds the output of "
			      "commands");
		return;
	}
	script_arg_path(&a, op->rq.path);
	shellfs_script(op, tar_script, &a, false);
}

static void tar_data(struct shellfs_op *op, const char *data, size_t n)
{
	(void)shellfs_tell_data(op, data, n);
}

const struct shellfs_kind shellfs_tar_out = { .begin = tar_begin,
					      .data = tar_data,
					      .done = shellfs_end };
