#include "cli/place.h"

#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/mem.h"
#include "base/text.h"

void place_release(struct place *p)
{
	free(p->text);
	free(p->typed);
	free(p->path);
	*p = (struct place)PLACE_INIT;
}

/* The length of the id in front of the colon; 0: it is none. */
static size_t id_length(const char *word)
{
	const char *colon = strchr(word, ':');
	char id[65];

	if (!colon || (size_t)(colon - word) >= sizeof(id))
		return 0;
	memcpy(id, word, (size_t)(colon - word));
	id[colon - word] = '\0';
	return name_valid(id) ? (size_t)(colon - word) : 0;
}

bool place_is(const char *word)
{
	return id_length(word) != 0;
}

int place_parse(const char *word, struct place *ret, struct garret_error *err)
{
	size_t n = id_length(word);

	if (!n)
		return garret_fail(
			err, GARRET_INVALID,
			"%.200s: a place in a session is ID:PATH (ID: is its work directory)",
			*word ? word : "\"\"");
	memcpy(ret->id, word, n);
	ret->id[n] = '\0';
	ret->text = xstrdup(word);
	ret->typed = xstrdup(word + n + 1);
	ret->path = ret->typed[0] == '/' ? xstrdup(ret->typed) : NULL;
	return 0;
}

static char *join(const char *dir, const char *name)
{
	size_t n = strlen(dir);

	if (!*dir || !*name)
		return xstrdup(*dir ? dir : name);
	return xasprintf("%s%s%s", dir, dir[n - 1] == '/' ? "" : "/", name);
}

void place_below(struct place *p, const char *work_dir)
{
	if (!p->path)
		p->path = join(work_dir, p->typed);
}

void place_append(struct place *p, const char *name)
{
	char *typed = join(p->typed, name), *path = join(p->path, name);

	place_release(&(struct place){ .text = p->text, .typed = p->typed, .path = p->path });
	p->typed = typed;
	p->path = path;
	p->text = xasprintf("%s:%s", p->id, typed);
}

char *base_name_of(const char *path)
{
	size_t end = strlen(path), begin;

	while (end && path[end - 1] == '/')
		end--;
	for (begin = end; begin && path[begin - 1] != '/';)
		begin--;
	if (begin == end || (end - begin == 1 && path[begin] == '.') ||
	    (end - begin == 2 && !memcmp(path + begin, "..", 2)))
		return NULL;
	return xstrndup(path + begin, end - begin);
}

char *place_name(const struct place *p)
{
	return base_name_of(p->typed);
}

void query_add(struct strbuf *url, const char *name, const char *bytes)
{
	static const char plain[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.~/";

	strbuf_addf(url, "%c%s=", strchr(url->buf, '?') ? '&' : '?', name);
	for (const unsigned char *p = (const unsigned char *)bytes; *p; p++) {
		if (strchr(plain, *p))
			strbuf_addch(url, *p);
		else
			strbuf_addf(url, "%%%02X", *p);
	}
}

static int hex(char c)
{
	const char *digits = "0123456789abcdef0123456789ABCDEF", *at = c ? strchr(digits, c) : NULL;

	return at ? (int)((at - digits) % 16) : -1;
}

char *percent_decode(const char *s)
{
	autofree char *out = xmalloc(strlen(s) + 1);
	size_t n = 0;

	for (; *s; s++) {
		int high = *s == '%' ? hex(s[1]) : -1, low = high < 0 ? -1 : hex(s[2]);

		if (low >= 0)
			s += 2;
		if (low == 0 && high == 0)
			return NULL;
		out[n++] = low < 0 ? *s : (char)(high << 4 | low);
	}
	out[n] = '\0';
	return take_ptr(&out);
}
