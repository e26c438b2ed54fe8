/*
 * Attachments: a file goes into the workspace and a reference to it into the prompt.  First the
 * workspace is asked, then it is decided what is shown, then the text is made and measured:
 * what doesn't fit into what the turn has left is dropped whole, so that no reference is half.
 */
#include <inttypes.h>
#include <string.h>

#include "app/files_impl.h"
#include "base/auto.h"
#include "base/mem.h"
#include "base/sized.h"

#define CUT "(cut here)\n"

struct garret_app_turn {
	struct garret_app_run *run;
	uint64_t image_left, text_left, image_max;
	bool no_images;
	bool parsed[GARRET_APP_KINDS];
	bool told; /* that the workspace would not take a file */
};

int garret_app_turn_new(struct garret_app_run *run, const struct garret_app_turn_options *options,
			struct garret_app_turn **ret, struct garret_error *err)
{
	struct garret_app_turn_options o = { 0 };
	struct garret_app_turn *turn;
	int rc = options ? sized_copy(&o, sizeof(o), options, options->size, err) : 0;

	*ret = NULL;
	if (rc < 0)
		return rc;
	for (size_t i = 0; i < o.n_parsed; i++)
		if ((unsigned)o.parsed[i] >= GARRET_APP_KINDS)
			return garret_fail(err, GARRET_INVALID, "parsed: from 0 to %d",
					   GARRET_APP_KINDS - 1);
	turn = xnew(struct garret_app_turn);
	turn->run = run;
	turn->image_left = o.image_bytes ? o.image_bytes : GARRET_APP_TURN_IMAGE_BYTES;
	turn->text_left = o.text_bytes ? o.text_bytes : GARRET_APP_TURN_TEXT_BYTES;
	turn->image_max = run ? run->app->inline_image_max_bytes : GARRET_APP_INLINE_IMAGE_MAX;
	turn->no_images = o.no_images;
	for (size_t i = 0; i < o.n_parsed; i++)
		turn->parsed[o.parsed[i]] = true;
	*ret = turn;
	return 0;
}

struct garret_app_turn *garret_app_turn_free(struct garret_app_turn *turn)
{
	free(turn);
	return NULL;
}

void garret_app_attached_release(struct garret_app_attached *r)
{
	free(r->text);
	free(r->path);
	free(r->text_path);
	memset(r, 0, sizeof(*r));
}

/* One attachment under way. */
struct attaching {
	struct garret_app_turn *turn;
	struct garret_workspace *w; /* NULL: without one */
	const struct garret_app_attachment *a;
	struct garret_app_attached *ret;
};

/* ---- into the workspace ---- */

/* Is a file there?  *ret is undefined after a failure; that nothing is there is none. */
static int look(struct garret_workspace *w, const char *path, bool *ret, struct garret_error *told)
{
	struct garret_entry e;
	int rc = garret_stat(w, path, &e, told);

	*ret = rc == 0;
	if (rc == 0 && e.is_dir)
		rc = -GARRET_IS_DIRECTORY;
	garret_entry_release(&e);
	return rc == -GARRET_NOT_FOUND ? 0 : rc;
}

static int beside(const struct attaching *x, struct garret_error *told)
{
	static const bool has_text[GARRET_APP_KINDS] = {
		[GARRET_APP_KIND_PDF] = true,          [GARRET_APP_KIND_DOCX] = true,
		[GARRET_APP_KIND_SPREADSHEET] = true,  [GARRET_APP_KIND_DOCUMENT] = true,
		[GARRET_APP_KIND_PRESENTATION] = true, [GARRET_APP_KIND_EMAIL] = true,
	};
	const enum garret_app_kind kind = x->a->kind;
	const char *text = x->a->text ? x->a->text : "";
	autofree char *path = xasprintf("%s.txt", x->ret->path);
	bool there = false;
	int rc = 0;

	if (!has_text[kind] || (x->turn->parsed[kind] && kind != GARRET_APP_KIND_EMAIL))
		return 0;
	if (!x->ret->written) /* beside a new file nothing is */
		rc = look(x->w, path, &there, told);
	if (rc == 0 && !there && *text) {
		rc = garret_write(x->w, path, text, strlen(text), 0, told);
		there = x->ret->text_written = rc == 0;
	}
	if (rc == 0 && there)
		x->ret->text_path = take_ptr(&path);
	return rc;
}

static int store(const struct attaching *x, struct garret_error *told)
{
	const struct garret_app_attachment *a = x->a;
	char safe[GARRET_APP_SAFE_NAME], id[9] = { 0 };
	autofree char *path = NULL;
	bool there;
	int rc;

	for (size_t i = 0; i < 8; i++) /* lower case: these are digits and letters */
		id[i] = (char)(a->id[i] | 0x20);
	garret_app_safe_name(a->name, safe);
	path = xasprintf("uploads/%s-%s", id, safe);
	rc = look(x->w, path, &there, told);
	if (rc == 0 && !there) {
		rc = garret_write(x->w, path, a->data, a->bytes, 0, told);
		x->ret->written = rc == 0;
	}
	if (rc < 0)
		return rc;
	x->ret->path = take_ptr(&path);
	return beside(x, told);
}

/* ---- what is shown ---- */

/* Does it begin as what models take?  Whatever it is called: another one would fail the turn. */
static bool is_shown_format(const struct garret_app_attachment *a)
{
	static const struct {
		const char *magic;
		size_t at, n;
	} formats[] = {
		{ "\x89PNG\r\n\x1a\n", 0, 8 },
		{ "\xff\xd8\xff", 0, 3 },
		{ "GIF87a", 0, 6 },
		{ "GIF89a", 0, 6 },
		{ "WEBP", 8, 4 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(formats); i++)
		if (a->bytes >= formats[i].at + formats[i].n &&
		    !memcmp((const char *)a->data + formats[i].at, formats[i].magic, formats[i].n))
			return true;
	return false;
}

static bool fits(const struct attaching *x, const void *data, size_t bytes, uint64_t *used)
{
	if (!data || bytes > x->turn->image_max || bytes > x->turn->image_left - *used)
		return false;
	*used += bytes;
	return true;
}

/* Bytes of images that are to be shown. */
static uint64_t show(const struct attaching *x)
{
	const struct garret_app_attachment *a = x->a;
	struct garret_app_attached *ret = x->ret;
	uint64_t used = 0;

	ret->pages = MAX(a->data ? app_tiff_pages(a->data, a->bytes) : 0, a->n_pages);
	if (x->turn->no_images)
		return 0;
	if (!a->n_pages)
		ret->shown = a->data && is_shown_format(a) && fits(x, a->data, a->bytes, &used);
	while (ret->shown < a->n_pages &&
	       fits(x, a->pages[ret->shown].data, a->pages[ret->shown].bytes, &used))
		ret->shown++;
	return used;
}

/* ---- what is said ---- */

static void say_where(const struct attaching *x, struct strbuf *out)
{
	const struct garret_app_attached *ret = x->ret;

	strbuf_addstr(out, "Attached file \"");
	app_label(out, x->a->name);
	strbuf_addf(out, "\" (%s", garret_app_kind_name(x->a->kind));
	if (x->a->data)
		strbuf_addf(out, ", %zu bytes", x->a->bytes);
	if (ret->pages)
		strbuf_addf(out, ", %zu page%s", ret->pages, ret->pages == 1 ? "" : "s");
	if (ret->path)
		strbuf_addf(out, "): %s\n", ret->path);
	else if (ret->refused)
		strbuf_addstr(out, "): it is not in the workspace and has no path; "
				   "don't guess why.\n");
	else
		strbuf_addstr(out, ")\n");
	if (ret->refused && !x->turn->told)
		strbuf_addstr(out, "The workspace would not take a file in this turn.\n");
	if (ret->text_path)
		strbuf_addf(out, "Its text: %s\n", ret->text_path);
}

static void say_shown(const struct attaching *x, struct strbuf *out)
{
	const struct garret_app_attached *ret = x->ret;

	if (ret->shown && x->a->n_pages)
		strbuf_addf(out, "Shown: the first %zu of its pages.\n", ret->shown);
	else if (ret->shown)
		strbuf_addstr(out, "It is shown.\n");
	else if (x->a->kind == GARRET_APP_KIND_IMAGE)
		strbuf_addstr(out, "It is not shown.\n");
}

/* Its first lines into body, or without a workspace its text; what leads there into out. */
static void say_text(const struct attaching *x, struct strbuf *out, struct strbuf *body)
{
	const struct garret_app_attachment *a = x->a;
	const bool extracted = a->text && *a->text;
	const void *text = extracted ? a->text : a->data;
	const size_t n = extracted ? strlen(a->text) : a->bytes;
	bool more;

	if (!text || !n || (!extracted && !app_is_text(text, n)))
		return;
	strbuf_addstr(out, x->w ? "It begins:\n" : "It holds:\n");
	more = x->w ? app_quote(body, text, n, GARRET_APP_HEAD_LINES, GARRET_APP_HEAD_CHARACTERS)
		    : app_quote(body, text, n, SIZE_MAX, GARRET_APP_PASTE_CHARACTERS);
	if (more)
		strbuf_addstr(body, x->w ? "(there is more)\n" : CUT);
}

/* Both, when the turn has room; a paste may be cut to what is left, and nothing is left then. */
static bool take_room(const struct attaching *x, struct strbuf *out, const struct strbuf *body)
{
	uint64_t *left = &x->turn->text_left;
	const size_t around = out->len + sizeof(CUT); /* a line's end in the place of the NUL */

	if (out->len + body->len <= *left) {
		strbuf_add(out, body->buf, body->len);
		*left -= out->len;
		return true;
	}
	if (x->w || around >= *left)
		return false;
	strbuf_add(out, body->buf, app_cut(body->buf, body->len, *left - around));
	strbuf_addstr(out, "\n" CUT);
	*left = 0;
	return true;
}

static void say(const struct attaching *x, uint64_t shown_bytes)
{
	autobuf struct strbuf out = STRBUF_INIT, body = STRBUF_INIT;
	struct garret_app_attached *ret = x->ret;

	say_where(x, &out);
	say_shown(x, &out);
	say_text(x, &out, &body);
	ret->processed = ret->path || ret->shown || body.len;
	if (!ret->processed)
		strbuf_addstr(&out, x->a->data ? "It could not be processed.\n"
					       : "It could not be loaded.\n");
	ret->dropped = !take_room(x, &out, &body);
	if (ret->dropped) {
		ret->shown = 0; /* what isn't named isn't shown */
		strbuf_reset(&out);
	} else {
		x->turn->image_left -= shown_bytes;
		x->turn->told |= ret->refused != GARRET_OK;
	}
	ret->text = xstrdup(out.buf);
}

static int check(struct garret_app_attachment *a, struct garret_error *err)
{
	if (!a->id || strspn(a->id, "0123456789abcdefABCDEF") < 8)
		return garret_fail(err, GARRET_INVALID, "id: a UUID");
	if ((unsigned)a->kind >= GARRET_APP_KINDS)
		return garret_fail(err, GARRET_INVALID, "kind: from 0 to %d", GARRET_APP_KINDS - 1);
	if (!a->name)
		a->name = "";
	if (a->kind == GARRET_APP_KIND_OTHER)
		a->kind = garret_app_kind_guess(a->media_type, a->name);
	return 0;
}

int garret_app_attach(struct garret_app_turn *turn, const struct garret_app_attachment *attachment,
		      struct garret_app_attached *ret, struct garret_error *err)
{
	struct garret_app_attachment a = { 0 };
	const struct attaching x = { turn, app_files_workspace(turn->run), &a, ret };
	struct garret_error told = { 0 };
	int rc = sized_copy(&a, sizeof(a), attachment, attachment->size, err);

	memset(ret, 0, sizeof(*ret));
	if (rc == 0)
		rc = check(&a, err);
	if (rc < 0)
		return rc;
	if (x.w && a.data)
		rc = store(&x, &told);
	ret->refused = (enum garret_code) - rc;
	rc = app_answered(rc, &told, err);
	if (rc < 0)
		garret_app_attached_release(ret);
	else
		say(&x, show(&x));
	return rc;
}
