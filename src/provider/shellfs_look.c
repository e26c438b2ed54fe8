/* stat, list, walk, realpath, digest; and the changes that are one script without a body. */
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/mem.h"
#include "base/text.h"
#include "provider/shellfs_impl.h"

#define LISTING_MAX (64u << 20) /* of what find prints */
#define ENTRIES_MAX 1000000
#define DEPTH_MAX 4096

/* ---- stat ---- */

static const char stat_script[] =
	"m() { a \"$1\"; p=$v; case $2 in *n*) place \"$1\"; if [ -L \"$p\" ]; then\n"
	"printf 'x %s\\n' \"$(stat -c \"$F\" \"$p\" 2>/dev/null)\"; readlink -n \"$p\"; return; "
	"fi;; esac\n"
	"look \"$p\" || return; case $2$k in *r*f) [ -r \"$p\" ] || return 113;; esac\n"
	"if [ $k = f ] && [ -z \"$s\" ] && [ -r \"$p\" ]; then s=$(wc -c <\"$p\") || return; "
	"s=$((s)); fi\n"
	"printf '%s %s\\n' $k \"$s\"; }";

static void stat_begin(struct shellfs_op *op)
{
	const uint32_t f = op->rq.flags;
	struct script_args a = { .n = 0 };

	script_arg_path(&a, op->rq.path);
	script_arg(&a, f & FILE_NOFOLLOW ? "n" : f & FILE_READABLE ? "r" : "-");
	shellfs_script(op, stat_script, &a, false);
}

static void unreadable(struct shellfs_op *op)
{
	shellfs_failf(op, GARRET_PROTOCOL,
		      "the tools of the environment describe a file in a way that can't be read");
}

static void stat_done(struct shellfs_op *op)
{
	autofree char *line = shellfs_line(op);
	struct file_info info;

	if (!line || !shellfs_parse_info(line, &info)) {
		unreadable(op);
		return;
	}
	if (*line == 'x') {
		/* As a worker describes a link that isn't followed. */
		info.type = FILE_OTHER;
		info.link = 1;
		info.target = op->out.buf;
	}
	if (!shellfs_tell_info(op, &info))
		shellfs_end(op);
}

const struct shellfs_kind shellfs_stat = { .begin = stat_begin, .done = stat_done };

/* ---- list, walk ---- */

static const char list_script[] =
	"m() { a \"$1\"; p=$v; look \"$p\" || return; [ $k = d ] || return 120\n"
	"[ -r \"$p\" ] && [ -x \"$p\" ] || return 113; cd -P \"$p\" || return; has find || return\n"
	"find . -mindepth 1 -maxdepth $2 ! -type l -exec sh -c \"$B\" sh N {} +\n"
	"[ $3 = n ] || find . -mindepth 1 -maxdepth $2 -type l -exec sh -c \"$B\" sh L {} + "
	"2>/dev/null; :; }";

static void list_begin(struct shellfs_op *op)
{
	const bool walk = op->rq.op == FILE_WALK;
	struct script_args a = { .n = 0 };

	script_arg_path(&a, op->rq.path);
	script_arg_number(&a, !walk ? 1 : op->rq.max_depth ? op->rq.max_depth : DEPTH_MAX);
	script_arg(&a, op->rq.flags & FILE_NOFOLLOW ? "n" : "l");
	shellfs_script(op, list_script, &a, false);
}

static void list_data(struct shellfs_op *op, const char *data, size_t n)
{
	if (op->out.len + n <= LISTING_MAX) {
		strbuf_add(&op->out, data, n);
		return;
	}
	shellfs_failf(op, GARRET_TOO_LARGE, "%s has more entries than can be listed by a shell",
		      op->rq.path);
}

static unsigned depth_of(const char *path)
{
	unsigned n = 0;

	for (; (path = strchr(path, '/')); path++)
		n++;
	return n;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct shell_entry *)a)->name, ((const struct shell_entry *)b)->name);
}

static int dirs_first(const void *a, const void *b)
{
	const struct file_info *x = &((const struct shell_entry *)a)->info;
	const struct file_info *y = &((const struct shell_entry *)b)->info;
	const int dx = x->type == FILE_DIRECTORY && !x->link;
	const int dy = y->type == FILE_DIRECTORY && !y->link;

	return dx == dy ? by_name(a, b) : dy - dx;
}

/* Breadth first, each directory's names sorted: by depth, then component by component. */
static int by_breadth(const void *a, const void *b)
{
	const char *x = ((const struct shell_entry *)a)->name;
	const char *y = ((const struct shell_entry *)b)->name;
	const unsigned dx = depth_of(x), dy = depth_of(y);

	if (dx != dy)
		return dx < dy ? -1 : 1;
	while (*x && *x == *y)
		x++, y++;
	if (*x == '/' || *y == '/' || !*x || !*y)
		return (*x == '/' || !*x ? 0 : 1) - (*y == '/' || !*y ? 0 : 1);
	return (unsigned char)*x - (unsigned char)*y;
}

static void tell_entries(struct shellfs_op *op, struct shell_entries *es, size_t max)
{
	const unsigned depth = op->rq.op == FILE_LIST ? UINT32_MAX
			       : op->rq.max_depth     ? op->rq.max_depth
						      : DEPTH_MAX;

	for (size_t i = 0; i < es->n; i++) {
		const struct file_info *info = &es->list[i].info;

		if (i == max) {
			op->end.truncated = true;
			break;
		}
		op->end.count++;
		/* Nobody looked into it. */
		if (info->type == FILE_DIRECTORY && !info->link &&
		    depth_of(info->name) + 1 >= depth)
			op->end.truncated = true;
		if (shellfs_tell_entry(op, info))
			return;
	}
	shellfs_end(op);
}

static void list_done(struct shellfs_op *op)
{
	const size_t max = op->rq.max_entries ? op->rq.max_entries : ENTRIES_MAX;
	struct shell_entries es = { 0 };
	struct garret_error err = { 0 };

	if (shell_entries_parse(&es, &op->out, &err) < 0) {
		shellfs_fail(op, &err);
	} else {
		if (es.n)
			qsort(es.list, es.n, sizeof(*es.list),
			      op->rq.op == FILE_WALK           ? by_breadth
			      : op->rq.flags & FILE_DIRS_FIRST ? dirs_first
							       : by_name);
		tell_entries(op, &es, max);
	}
	shell_entries_release(&es);
}

const struct shellfs_kind shellfs_list = { .begin = list_begin,
					   .data = list_data,
					   .done = list_done };

/* ---- realpath, digest ---- */

static const char realpath_script[] =
	"m() { a \"$1\"; real \"$v\" || return; printf '%s' \"$r\"; }";
static const char digest_script[] =
	"m() { a \"$1\"; p=$v; look \"$p\" || return\n"
	"case $k in d) return 121;; o) return 122;; esac; [ -r \"$p\" ] || return 113\n"
	"has sha256sum || return; h=$(sha256sum <\"$p\") || return\n"
	"[ -n \"$s\" ] || { s=$(wc -c <\"$p\") || return; s=$((s)); }\n"
	"printf '%s\\n' \"$k $s\" \"$h\"; }";

static void realpath_begin(struct shellfs_op *op)
{
	struct script_args a = { .n = 0 };

	script_arg_path(&a, op->rq.path);
	shellfs_script(op, op->rq.op == FILE_DIGEST ? digest_script : realpath_script, &a, false);
}

static void realpath_done(struct shellfs_op *op)
{
	if (op->out.buf[0] != '/' || strlen(op->out.buf) != op->out.len) {
		unreadable(op);
		return;
	}
	strbuf_add(&op->end_path, op->out.buf, op->out.len);
	shellfs_end(op);
}

const struct shellfs_kind shellfs_realpath = { .begin = realpath_begin, .done = realpath_done };

static void digest_done(struct shellfs_op *op)
{
	autofree char *line = shellfs_line(op), *hex = shellfs_line(op);
	struct file_info info;

	if (!line || !shellfs_parse_info(line, &info) || !hex || strlen(hex) < 64) {
		unreadable(op);
		return;
	}
	hex[64] = '\0';
	if (!hex_decode(hex, op->end.digest, sizeof(op->end.digest))) {
		unreadable(op);
		return;
	}
	op->end.count = info.tag.size;
	if (!shellfs_tell_info(op, &info))
		shellfs_end(op);
}

const struct shellfs_kind shellfs_digest = { .begin = realpath_begin, .done = digest_done };

/* ---- changes ---- */

/*
 * keep PATH: t is the path with the links of its directory resolved; refused when that is
 * the work directory or holds it.  (bash takes an empty "${t%/}" in a pattern for something
 * else: the root has a test of its own.)  above: what is above $1 is made when that is wanted.
 */
#define CHANGE                                                                                     \
	"keep() { place \"$1\"; b=${p##*/}; case $b in ''|.|..) real \"$p\" || return; t=$r;;\n"   \
	"*) d=${p%/*}; real \"${d:-/}\" || return; t=${r%/}/$b;; esac\n"                           \
	"x=${t%/}; [ -n \"$x\" ] || return 119; case ${W%/}/ in \"$x\"/*) return 119;; esac\n"     \
	"[ -e \"$t\" ] || [ -L \"$t\" ] || { ls -d \"$p\" >/dev/null && return 102; return 1; }; " \
	"}\n"                                                                                      \
	"above() { d=${1%/*}; d=${d:-/}; [ -d \"$d\" ] && return; [ -e \"$d\" ] && return 120\n"   \
	"[ $2 = 1 ] || { why \"$d\"; return; }; up \"$1\" && mkdir -p \"$d\"; }\n"

static const char mkdir_script[] =
	CHANGE "m() { place \"$1\"; [ ! -d \"$p\" ] || { [ $2 = 1 ] && return; return 117; }\n"
	       "[ ! -e \"$p\" ] && [ ! -L \"$p\" ] || return 117\n"
	       "[ $2 = 1 ] && { real \"$p\" || return; p=$r; }\n"
	       "above \"$p\" $2 || return\n"
	       "mkdir -m $(um $3) \"$p\" || { [ $2 = 1 ] && [ -d \"$p\" ]; }; }";

static const char remove_script[] =
	CHANGE "m() { W=$3; keep \"$1\" || return\n"
	       "if [ -d \"$t\" ] && [ ! -L \"$t\" ]; then\n"
	       "if [ $2 = 1 ]; then rm -rf \"$t\"; else rmdir \"$t\"; fi; else rm -f \"$t\"; fi; }";

/*
 * Without renameat2 there are two steps that claim a name at once: ln for what is no
 * directory, mkdir (which mv then replaces) for what is one.
 */
static const char rename_script[] = CHANGE
	"m() { W=$5; keep \"$1\" || return; f=$t; place \"$2\"; q=$p\n"
	"[ $4 = 0 ] || { d=${q%/*}; real \"${d:-/}\" || return; q=${r%/}/${q##*/}; }\n"
	"above \"$q\" $4 || return\n"
	"if [ $3 = 1 ]; then [ ! -e \"$q\" ] && [ ! -L \"$q\" ] || return 117\n"
	"if [ -d \"$f\" ] && [ ! -L \"$f\" ]; then mkdir \"$q\" || return\n"
	"mv -fT \"$f\" \"$q\" || { e=$?; rmdir \"$q\"; return $e; }\n"
	"else ln -T \"$f\" \"$q\" || return; rm -f \"$f\"; fi; return; fi\n"
	"if [ -d \"$q\" ] && [ ! -L \"$q\" ]; then [ -d \"$f\" ] && [ ! -L \"$f\" ] || return 121\n"
	"elif [ -e \"$q\" ] && [ -d \"$f\" ] && [ ! -L \"$f\" ]; then return 120; fi\n"
	"mv -fT \"$f\" \"$q\"; }";

/* The copy is made beside its place under another name ($6), which then is taken at once. */
static const char copy_script[] = CHANGE
	"m() { place \"$1\"; f=$p; place \"$2\"; q=$p; real \"$q\" || return; R2=$r\n"
	"if [ $3 = 1 ]; then [ -e \"$f\" ] || [ -L \"$f\" ] || { why \"$f\"; return; }\n"
	"real \"$f\" || return; x=${r%/}; case $R2/ in \"$x\"/*) return 123;; esac; o=-RPp\n"
	"else look \"$f\" || return; case $k in d) return 121;; o) return 122;; esac\n"
	"[ -r \"$f\" ] || return 113; q=$R2 o=-L\n"
	"if [ -d \"$q\" ]; then return 121; fi; [ ! -e \"$q\" ] || [ -f \"$q\" ] || return 122\n"
	"[ ! -e \"$q\" ] || [ $4 = 1 ] || [ -w \"$q\" ] || return 113\n"
	"fi\n"
	"if [ $4 = 1 ]; then [ ! -e \"$q\" ] && [ ! -L \"$q\" ] || return 117; fi\n"
	"above \"$q\" $5 || return; t=${q%/*}/$6\n"
	"cp $o \"$f\" \"$t\" || { e=$?; rm -rf \"$t\"; return $e; }\n"
	"if [ $3 = 0 ]; then c=$f; [ ! -e \"$q\" ] || c=$q\n"
	"n=$(stat -L -c %a \"$c\" 2>/dev/null) && chmod \"$n\" \"$t\"; fi\n"
	"if [ $4 = 0 ]; then mv -fT \"$t\" \"$q\"\n"
	"elif [ -d \"$t\" ] && [ ! -L \"$t\" ]; then mkdir \"$q\" && mv -fT \"$t\" \"$q\"\n"
	"else ln -T \"$t\" \"$q\" && rm -f \"$t\"; fi\n"
	"e=$?; [ $e = 0 ] || rm -rf \"$t\"; return $e; }";

static const char chmod_script[] =
	CHANGE "m() { place \"$1\"; [ -e \"$p\" ] || { why \"$p\"; return; }\n"
	       "if [ $2 = 1 ] && [ ! -L \"$p\" ]; then\n"
	       "find \"$p\" -depth ! -type l -exec chmod $3 {} +; else chmod $3 \"$p\"; fi; }";

static const char *flag(const struct shellfs_op *op, uint32_t bit)
{
	return op->rq.flags & bit ? "1" : "0";
}

static void change_begin(struct shellfs_op *op)
{
	const struct file_request *rq = &op->rq;
	/* Five digits: GNU's chmod then clears the bits that it would keep on directories. */
	const uint32_t bits = rq->mode || rq->op == FILE_CHMOD ? rq->mode : 0777;
	autofree char *mode = xasprintf("%05o", bits);
	struct script_args a = { .n = 0 };
	const char *script = NULL;

	script_arg_path(&a, rq->path);
	switch (rq->op) {
	case FILE_MKDIR:
		script_arg(&a, flag(op, FILE_PARENTS));
		script_arg(&a, mode);
		script = mkdir_script;
		break;
	case FILE_REMOVE:
		script_arg(&a, flag(op, FILE_TREE));
		script_arg(&a, op->fs->host.work_dir);
		script = remove_script;
		break;
	case FILE_RENAME:
		script_arg_path(&a, rq->to);
		script_arg(&a, flag(op, FILE_EXCLUSIVE));
		script_arg(&a, flag(op, FILE_PARENTS));
		script_arg(&a, op->fs->host.work_dir);
		script = rename_script;
		break;
	case FILE_COPY:
		shellfs_name_temp(op);
		script_arg_path(&a, rq->to);
		script_arg(&a, flag(op, FILE_TREE));
		script_arg(&a, flag(op, FILE_EXCLUSIVE));
		script_arg(&a, flag(op, FILE_PARENTS));
		script_arg(&a, op->body.temp);
		script = copy_script;
		break;
	default:
		script_arg(&a, flag(op, FILE_TREE));
		script_arg(&a, mode);
		script = chmod_script;
	}
	shellfs_script(op, script, &a, false);
}

const struct shellfs_kind shellfs_change = { .begin = change_begin, .done = shellfs_end };
