/* Small things of the files around the tools: what a workspace answered, and text for a prompt. */
#include "app/files_impl.h"

#include <string.h>

#include "base/mem.h"
#include "base/text.h"

#define LABEL_CHARACTERS 200
/* A character has at most 4 bytes: this much of a text holds all that is shown of it. */
#define LOOK_BYTES ((GARRET_APP_HEAD_CHARACTERS + 1) * 4)

struct garret_workspace *app_files_workspace(const struct garret_app_run *run)
{
	if (!run || !run->workspace || garret_workspace_is_none(run->workspace))
		return NULL;
	return run->workspace;
}

int app_answered(int rc, const struct garret_error *told, struct garret_error *err)
{
	return rc == -GARRET_CANCELLED ? garret_fail(err, GARRET_CANCELLED, "%s", told->msg) : 0;
}

bool app_of_path(int rc)
{
	static const enum garret_code codes[] = {
		GARRET_NOT_FOUND, GARRET_NOT_DIRECTORY, GARRET_IS_DIRECTORY, GARRET_EXISTS,
		GARRET_DENIED,    GARRET_NOT_REGULAR,   GARRET_INVALID,      GARRET_OUTSIDE,
	};

	for (size_t i = 0; i < ARRAY_SIZE(codes); i++)
		if (rc == -(int)codes[i])
			return true;
	return false;
}

static int too_large(const char *path, uint64_t most, struct garret_error *err)
{
	return garret_fail(err, GARRET_TOO_LARGE, "%s: more than %ju bytes", path, (uintmax_t)most);
}

int app_read_file(struct garret_workspace *w, const char *path, uint64_t known, size_t most,
		  struct garret_bytes *ret, struct garret_error *err)
{
	struct garret_entry e = { 0 };
	int rc = 0;

	memset(ret, 0, sizeof(*ret));
	if (known == GARRET_SIZE_UNKNOWN) {
		rc = garret_stat(w, path, &e, err);
		known = e.bytes;
		garret_entry_release(&e);
	}
	if (rc == 0 && known != GARRET_SIZE_UNKNOWN && known > most)
		return too_large(path, most, err);
	if (rc == 0)
		rc = garret_read_at(w, path, 0, most + 1, ret, err);
	if (rc == 0 && ret->n > most) { /* it grew, or nobody knew */
		garret_bytes_release(ret);
		return too_large(path, most, err);
	}
	return rc;
}

bool app_below(const char *path, const char *directory)
{
	const size_t n = strlen(directory);

	return !strncmp(path, directory, n) && (path[n] == '/' || !path[n]);
}

static bool continues(char c)
{
	return ((unsigned char)c & 0xc0) == 0x80;
}

size_t app_cut(const char *text, size_t n, size_t most)
{
	if (n <= most)
		return n;
	while (most && continues(text[most]))
		most--;
	return most;
}

/* As UTF-8; the work is bounded by `most`, however long the text is. */
static void repaired(struct strbuf *out, const void *data, size_t n, size_t most)
{
	struct utf8_repair u = { .n = 0 };

	utf8_repair_add(&u, out, data, n < most ? n : most);
	utf8_repair_end(&u, out);
}

/*
 * Bytes of the character at p (valid UTF-8) when it may not stand in a label: controls, what breaks
 * a line, and what turns the direction of writing; else 0.
 */
static size_t unwanted(const unsigned char *p)
{
	if (*p < ' ' || *p == 0x7f)
		return 1;
	if (*p == 0xc2 && p[1] < 0xa0)
		return 2;
	/* U+2028 to U+202E, U+2066 to U+2069 */
	if (*p == 0xe2 && ((p[1] == 0x80 && p[2] >= 0xa8 && p[2] <= 0xae) ||
			   (p[1] == 0x81 && p[2] >= 0xa6 && p[2] <= 0xa9)))
		return 3;
	return 0;
}

void app_label(struct strbuf *out, const char *name)
{
	autobuf struct strbuf text = STRBUF_INIT;
	size_t characters = 0, n;

	repaired(&text, name, strlen(name), (LABEL_CHARACTERS + 1) * 4);
	for (size_t i = 0; i < text.len; i++) {
		const unsigned char *p = (const unsigned char *)text.buf + i;

		if (!continues((char)*p) && characters++ == LABEL_CHARACTERS) {
			strbuf_addstr(out, "...");
			return;
		}
		n = unwanted(p);
		i += n ? n - 1 : 0;
		strbuf_addch(out, n ? ' ' : *p == '"' ? '\'' : *p);
	}
}

bool app_is_text(const void *data, size_t n)
{
	size_t look = n;

	if (n > LOOK_BYTES)
		for (look = LOOK_BYTES; look > LOOK_BYTES - 4; look--)
			if (!continues(((const char *)data)[look]))
				break;
	return !memchr(data, '\0', look) && utf8_valid(data, look);
}

bool app_quote(struct strbuf *out, const void *data, size_t n, size_t lines, size_t characters)
{
	autobuf struct strbuf text = STRBUF_INIT;
	size_t line = 0, seen = 0, i = 0;
	bool begins = true;

	repaired(&text, data, n, (characters + 1) * 4);
	for (; i < text.len; i++) {
		const char c = text.buf[i];

		if (c == '\r' || !c)
			continue;
		if (!continues(c) && (line == lines || seen++ == characters))
			break;
		if (begins)
			strbuf_addstr(out, "| ");
		strbuf_addch(out, c);
		begins = c == '\n';
		line += begins;
	}
	if (!begins)
		strbuf_addch(out, '\n');
	return i < text.len || n > (characters + 1) * 4;
}
