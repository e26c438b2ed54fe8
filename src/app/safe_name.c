/* Names and kinds of files that strangers send. */
#include <string.h>
#include <strings.h>

#include "app/files_impl.h"
#include "base/mem.h"

#define EXTENSION_MAX 16 /* longer is no extension, but a name with a dot */

static bool plain(unsigned char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
	       c == '.' || c == '_' || c == '-';
}

void garret_app_safe_name(const char *name, char ret[GARRET_APP_SAFE_NAME])
{
	const size_t most = GARRET_APP_SAFE_NAME - 1;
	autobuf struct strbuf safe = STRBUF_INIT;
	const char *text, *dot;
	size_t n, tail = 0;

	for (const unsigned char *p = (const unsigned char *)name; *p; p++) {
		if (p[0] == '.' && p[1] == '.') {
			while (p[1] == '.')
				p++;
			strbuf_addch(&safe, '_');
		} else if ((*p & 0xc0) != 0x80) { /* one for a character, however many bytes */
			strbuf_addch(&safe, plain(*p) ? *p : '_');
		}
	}
	text = safe.buf + strspn(safe.buf, "._-");
	n = strlen(text);
	if (!n) {
		memcpy(ret, "attachment", sizeof("attachment"));
		return;
	}
	dot = strrchr(text, '.');
	if (n > most && dot && strlen(dot) <= EXTENSION_MAX)
		tail = strlen(dot);
	n = MIN(n, most - tail);
	while (tail && text[n - 1] == '.') /* no run of dots where it was cut */
		n--;
	memcpy(ret, text, n);
	memcpy(ret + n, text + strlen(text) - tail, tail);
	ret[n + tail] = '\0';
}

/* ---- kinds ---- */

static const char *const names[GARRET_APP_KINDS] = {
	[GARRET_APP_KIND_OTHER] = "file",        [GARRET_APP_KIND_TEXT] = "text",
	[GARRET_APP_KIND_IMAGE] = "image",       [GARRET_APP_KIND_PDF] = "pdf",
	[GARRET_APP_KIND_DOCX] = "docx",         [GARRET_APP_KIND_SPREADSHEET] = "spreadsheet",
	[GARRET_APP_KIND_DOCUMENT] = "document", [GARRET_APP_KIND_PRESENTATION] = "presentation",
	[GARRET_APP_KIND_EMAIL] = "email",
};

/* The first row that fits counts; a type that ends with '/' or '.' stands for all that begin so. */
static const struct {
	enum garret_app_kind kind;
	const char *types, *extensions;
} kinds[] = {
	{ GARRET_APP_KIND_IMAGE, "image/ ", "png jpg jpeg gif webp tif tiff bmp heic avif svg " },
	{ GARRET_APP_KIND_PDF, "application/pdf ", "pdf " },
	{ GARRET_APP_KIND_DOCX,
	  "application/vnd.openxmlformats-officedocument.wordprocessingml.document ", "docx " },
	{ GARRET_APP_KIND_SPREADSHEET,
	  "application/vnd.openxmlformats-officedocument.spreadsheetml. application/vnd.ms-excel "
	  "application/vnd.oasis.opendocument.spreadsheet text/csv text/tab-separated-values ",
	  "xlsx xlsm xls ods csv tsv " },
	{ GARRET_APP_KIND_PRESENTATION,
	  "application/vnd.openxmlformats-officedocument.presentationml. "
	  "application/vnd.ms-powerpoint application/vnd.oasis.opendocument.presentation ",
	  "pptx ppt odp " },
	{ GARRET_APP_KIND_DOCUMENT,
	  "application/msword application/rtf text/rtf application/epub+zip "
	  "application/vnd.oasis.opendocument.text ",
	  "doc odt rtf epub " },
	{ GARRET_APP_KIND_EMAIL, "message/rfc822 application/vnd.ms-outlook ", "eml msg " },
	{ GARRET_APP_KIND_TEXT, "text/ application/json application/xml application/yaml ",
	  "txt md log json jsonl xml yaml yml toml ini html css js ts py c h sh sql " },
};

/* Is it one of the words, each of which ends with a space? */
static bool listed(const char *words, const char *word, size_t n)
{
	for (; *words; words += strcspn(words, " ") + 1) {
		const size_t len = strcspn(words, " ");
		const bool open = words[len - 1] == '/' || words[len - 1] == '.';

		if ((open ? n >= len : n == len) && !strncasecmp(words, word, len))
			return true;
	}
	return false;
}

const char *garret_app_kind_name(enum garret_app_kind kind)
{
	return names[(unsigned)kind < GARRET_APP_KINDS ? kind : GARRET_APP_KIND_OTHER];
}

enum garret_app_kind garret_app_kind_guess(const char *media_type, const char *name)
{
	const char *type = media_type ? media_type : "";
	const char *dot = name ? strrchr(name, '.') : NULL;

	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++)
		if (listed(kinds[i].types, type, strcspn(type, "; ")))
			return kinds[i].kind;
	for (size_t i = 0; dot && i < ARRAY_SIZE(kinds); i++)
		if (listed(kinds[i].extensions, dot + 1, strlen(dot + 1)))
			return kinds[i].kind;
	return GARRET_APP_KIND_OTHER;
}
