/* What stat and find print, read back.  It is the environment's word: every part is checked. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"
#include "base/text.h"
#include "provider/shellfs_impl.h"

/* "2026-11-30 05:52:33.227483330 +0000" (UTC, the fraction may be missing); NULL: none. */
static const char *parse_time(const char *s, uint64_t *ret)
{
	struct tm tm = { 0 };
	const char *p = strptime(s, "%Y-%m-%d %H:%M:%S", &tm);
	uint64_t ns = 0, unit = 1000000000;
	time_t t;

	if (!p)
		return NULL;
	if (*p == '.')
		for (p++; *p >= '0' && *p <= '9'; p++)
			ns += (uint64_t)(*p - '0') * (unit /= 10);
	t = timegm(&tm);
	if (strncmp(p, " +0000", 6) != 0 || t < 0)
		return NULL;
	*ret = (uint64_t)t * 1000000000 + ns;
	return p + 6;
}

static bool parse_number(const char **p, int base, uint64_t *ret)
{
	char *end;

	if (!strchr("0123456789abcdef", **p) || !**p)
		return false;
	*ret = strtoull(*p, &end, base);
	if (end == *p || (*end && *end != ' '))
		return false;
	*p = end + (*end == ' ');
	return true;
}

bool shellfs_numbers(const char *line, uint64_t *ret, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (!parse_number(&line, 10, &ret[i]))
			return false;
	return !*line;
}

static bool parse_stat(const char *s, struct file_info *ret)
{
	uint64_t mode, uid, gid;

	if (!parse_number(&s, 16, &mode) || !parse_number(&s, 10, &uid) ||
	    !parse_number(&s, 10, &gid) || !parse_number(&s, 10, &ret->tag.inode) ||
	    !parse_number(&s, 10, &ret->tag.size))
		return false;
	s = parse_time(s, &ret->tag.mtime_ns);
	if (!s || *s != ' ' || !(s = parse_time(s + 1, &ret->tag.ctime_ns)) || *s)
		return false;
	ret->mode = (uint32_t)mode & 0777;
	ret->uid = (uint32_t)uid;
	ret->gid = (uint32_t)gid;
	if (ret->type == FILE_DANGLING)
		return true;
	/* The letter came from a look before this one, or is a guess for a whole batch. */
	mode &= 0170000;
	ret->type = mode == 0040000 ? FILE_DIRECTORY : mode == 0100000 ? FILE_REGULAR : FILE_OTHER;
	return true;
}

bool shellfs_parse_info(const char *line, struct file_info *ret)
{
	static const char letters[] = "fdox";
	const char *at = *line ? strchr(letters, *line) : NULL;

	if (!at || (line[1] && line[1] != ' '))
		return false;
	*ret = (struct file_info){ .type = (uint8_t)(at - letters), .name = "", .target = "" };
	if (line[1] && line[2] && parse_stat(line + 2, ret))
		return true;
	ret->tag = (struct file_tag){ 0 };
	ret->unknown = FILE_NO_SIZE | FILE_NO_MODE | FILE_NO_TIMES;
	/* Without stat the size may have been counted. */
	if (line[1] && ret->type == FILE_REGULAR && parse_u64(line + 2, &ret->tag.size))
		ret->unknown &= (uint8_t)~FILE_NO_SIZE;
	return true;
}

char *shellfs_line(struct shellfs_op *op)
{
	char *end = memchr(op->out.buf, '\n', op->out.len);
	char *line;
	size_t n;

	if (!end)
		return NULL;
	n = (size_t)(end - op->out.buf);
	line = xstrndup(op->out.buf, n);
	strbuf_remove_front(&op->out, n + 1);
	return line;
}

/* ---- listings ---- */

struct cursor {
	const char *at, *end;
};

/* Up to `stop`, which is left out; NULL when there is none. */
static char *next(struct cursor *c, char stop)
{
	const char *end = memchr(c->at, stop, (size_t)(c->end - c->at));
	char *s;

	if (!end)
		return NULL;
	s = xstrndup(c->at, (size_t)(end - c->at));
	c->at = end + 1;
	return s;
}

static struct shell_entry *add(struct shell_entries *es, char *name)
{
	struct shell_entry *e;

	if (es->n == es->cap) {
		es->cap = es->cap ? 2 * es->cap : 64;
		es->list = xrealloc(es->list, es->cap * sizeof(*es->list));
	}
	e = &es->list[es->n++];
	*e = (struct shell_entry){ .name = name };
	if (!strncmp(name, "./", 2))
		memmove(name, name + 2, strlen(name + 2) + 1);
	return e;
}

/* "B<N|L> COUNT", names, targets of links, a line for each. */
static bool parse_batch(struct shell_entries *es, struct cursor *c)
{
	char *head = next(c, '\n');
	bool fine = head && head[0] == 'B' && (head[1] == 'N' || head[1] == 'L') && head[2] == ' ';
	const bool links = fine && head[1] == 'L';
	const size_t first = es->n;
	uint64_t n = 0;

	fine = fine && parse_u64(head + 3, &n);
	free(head);
	for (uint64_t i = 0; fine && i < n; i++) {
		char *name = next(c, '\0');

		fine = name && *name && strlen(name) <= FILE_NAME_MAX;
		if (name)
			(void)add(es, name);
	}
	for (uint64_t i = 0; fine && links && i < n; i++)
		fine = (es->list[first + i].target = next(c, '\0')) != NULL;
	for (uint64_t i = 0; fine && i < n; i++) {
		struct shell_entry *e = &es->list[first + i];
		char *line = next(c, '\n');

		e->gone = line && !strcmp(line, "-");
		fine = line && (e->gone || shellfs_parse_info(line, &e->info));
		free(line);
		e->info.link = links;
		e->info.name = e->name;
		e->info.target = e->target ? e->target : "";
	}
	return fine;
}

int shell_entries_parse(struct shell_entries *es, const struct strbuf *out,
			struct garret_error *err)
{
	struct cursor c = { out->buf, out->buf + out->len };
	size_t kept = 0;

	while (c.at < c.end)
		if (!parse_batch(es, &c))
			return garret_fail(err, GARRET_PROTOCOL,
					   "the tools of the environment list files in a way that "
					   "can't be read");
	for (size_t i = 0; i < es->n; i++) {
		if (es->list[i].gone) {
			free(es->list[i].name);
			free(es->list[i].target);
		} else {
			es->list[kept++] = es->list[i];
		}
	}
	es->n = kept;
	return 0;
}

void shell_entries_release(struct shell_entries *es)
{
	for (size_t i = 0; i < es->n; i++) {
		free(es->list[i].name);
		free(es->list[i].target);
	}
	free(es->list);
	*es = (struct shell_entries){ 0 };
}
