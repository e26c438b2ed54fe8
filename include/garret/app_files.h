/*
 * Files around the tools of a run: what an application puts into a workspace and takes out of it.
 *
 * All of it survives a workspace that refuses.  Whatever the workspace says (it is full, read-only,
 * gone, its host is down, its shell failed) is part of the result, never a reason to end the turn:
 * these functions return 0, or -CANCELLED when the handle was cancelled, or -MISUSE, -UNSUPPORTED
 * and -INVALID for what the program itself gave wrong.  `refused` in a result is what the
 * workspace said; GARRET_OK when it didn't refuse.
 *
 * A run that is NULL is "without a workspace".  Paths in results are relative to the working
 * directory: an absolute one would lie at the root of a container, outside of what is kept.
 *
 * Texts in results are for the prompt, in UTF-8.  What strangers named or wrote stands in them
 * in quotes, or as lines that begin with "| "; control characters are taken out of names.
 *
 * They block as the operations of the workspace do.  Each result is released by the function
 * beside it, also after a failure, when it was zeroed before.
 */
#ifndef GARRET_APP_FILES_H
#define GARRET_APP_FILES_H

#include "garret/app.h"

/* ---- attachments ---- */

enum garret_app_kind {
	GARRET_APP_KIND_OTHER,
	GARRET_APP_KIND_TEXT,
	GARRET_APP_KIND_IMAGE,
	GARRET_APP_KIND_PDF,
	GARRET_APP_KIND_DOCX,
	GARRET_APP_KIND_SPREADSHEET,
	GARRET_APP_KIND_DOCUMENT,
	GARRET_APP_KIND_PRESENTATION,
	GARRET_APP_KIND_EMAIL,
	GARRET_APP_KINDS
};
/* Borrowed, static. */
GARRET_PUBLIC const char *garret_app_kind_name(enum garret_app_kind kind);
/* By the media type, else by the end of the name; both may be NULL.  It doesn't look inside. */
GARRET_PUBLIC enum garret_app_kind garret_app_kind_guess(const char *media_type, const char *name);

#define GARRET_APP_SAFE_NAME 97 /* bytes with the NUL */
/*
 * A name that any file system and shell takes as one plain word: letters and digits of ASCII and
 * "._-"; each other character is '_', as is a run of dots; it doesn't begin with one of "._-"; at
 * most 96 characters, cut before the extension; "attachment" when nothing is left.
 */
GARRET_PUBLIC void garret_app_safe_name(const char *name, char ret[GARRET_APP_SAFE_NAME]);

#define GARRET_APP_TURN_IMAGE_BYTES (20u << 20)
#define GARRET_APP_TURN_TEXT_BYTES (96u << 10)
#define GARRET_APP_HEAD_LINES 20
#define GARRET_APP_HEAD_CHARACTERS 2000
#define GARRET_APP_PASTE_CHARACTERS 32000 /* of one file, without a workspace */

/* What the attachments of one turn share: what is left to be shown, and what was said already. */
struct garret_app_turn;

struct garret_app_turn_options {
	size_t size;
	uint64_t image_bytes; /* of images that are shown; 0: GARRET_APP_TURN_IMAGE_BYTES */
	uint64_t text_bytes;  /* of the texts in the results; 0: GARRET_APP_TURN_TEXT_BYTES */
	bool no_images;       /* the model sees none: none is shown */
	/* Kinds that the environment's runtime reads by itself: no text beside those, but of email. */
	const enum garret_app_kind *parsed;
	size_t n_parsed;
};
/* For one thread at a time; the run (may be NULL) must stay open.  options may be NULL. */
GARRET_PUBLIC int garret_app_turn_new(struct garret_app_run *run,
				      const struct garret_app_turn_options *options,
				      struct garret_app_turn **ret, struct garret_error *err);
/* Returns NULL; NULL is fine. */
GARRET_PUBLIC struct garret_app_turn *garret_app_turn_free(struct garret_app_turn *turn);

/* A picture of a page, as the application made it. */
struct garret_app_page {
	const void *data;
	size_t bytes;
};

struct garret_app_attachment {
	size_t size;
	const char *id;            /* a UUID; its first 8 digits keep files of one name apart */
	const char *name;          /* as the sender called it */
	const char *media_type;    /* NULL: it isn't known */
	enum garret_app_kind kind; /* OTHER: it is guessed */
	const void *data;          /* NULL: it couldn't be loaded ("" of an empty file) */
	size_t bytes;
	const char *text; /* what was extracted from it; NULL: nothing was */
	/* To be shown in the place of the file itself: of a TIFF, which models don't take. */
	const struct garret_app_page *pages;
	size_t n_pages;
};

struct garret_app_attached {
	char *text;      /* for the prompt; "" when this turn has no room for it */
	char *path;      /* where the file is; NULL: it isn't in the workspace */
	char *text_path; /* where its extracted text is; NULL: it isn't there */
	bool written;    /* by this call; false when it was there already */
	bool text_written;
	bool processed; /* false: it could only be named */
	bool dropped;   /* the turn's room for text is used up: it isn't named */
	size_t shown; /* show so many: the first of `pages`, or, without pages, the file itself (1) */
	size_t pages; /* that it has: of a TIFF, counted, and of what was given; 0: not known */
	enum garret_code refused;
};
/*
 * Put a file that came with a message into the workspace, as uploads/<8 digits>-<safe name>, and
 * say so: its name, kind, size, path and first lines.  One that is there is not written again.
 * Text extracted from a PDF, DOCX, spreadsheet, document, presentation or email stands beside it
 * as <path>.txt.
 *
 * When the workspace doesn't take it, it has no path and its first lines are shown; it is never
 * pasted whole.  Without a workspace its text is pasted, up to GARRET_APP_PASTE_CHARACTERS and what
 * the turn has left.  What begins as a PNG, JPEG, GIF or WebP is shown in both cases, up to the
 * application's inline_image_max_bytes and what the turn has left.
 */
GARRET_PUBLIC int garret_app_attach(struct garret_app_turn *turn,
				    const struct garret_app_attachment *attachment,
				    struct garret_app_attached *ret, struct garret_error *err);
GARRET_PUBLIC void garret_app_attached_release(struct garret_app_attached *r);

/* ---- images that a model made ---- */

struct garret_app_stored {
	char *path; /* NULL: it isn't in the workspace, or there is none */
	char *text; /* what the model is told of that */
	enum garret_code refused;
};
/*
 * Put it at output/<safe name>, over one of that name.  Whatever comes of it, the image, its
 * link and what it cost are the caller's, who has them still.
 */
GARRET_PUBLIC int garret_app_image_store(struct garret_app_run *run, const char *name,
					 const void *data, size_t bytes,
					 struct garret_app_stored *ret, struct garret_error *err);
GARRET_PUBLIC void garret_app_stored_release(struct garret_app_stored *r);

/* ---- artifacts: a file of the workspace that is published ---- */

#define GARRET_APP_ARTIFACT_MAX (16u << 20)

enum garret_app_artifact_answer {
	GARRET_APP_ARTIFACT_READ,       /* data is what it holds */
	GARRET_APP_ARTIFACT_REFUSED,    /* it may not be read */
	GARRET_APP_ARTIFACT_OTHER_PATH, /* nothing to publish there: missing, a directory, empty */
	GARRET_APP_ARTIFACT_CONTENT,    /* no workspace: the model is to give the content itself */
	GARRET_APP_ARTIFACT_TOO_LARGE,
	GARRET_APP_ARTIFACT_FAILED, /* the workspace failed */
};
struct garret_app_artifact {
	enum garret_app_artifact_answer answer;
	uint8_t *data; /* with a NUL behind it; NULL but for READ */
	size_t bytes;
	char *text; /* what the model is told; NULL for READ */
	enum garret_code refused;
};
/* At most max_bytes (0: GARRET_APP_ARTIFACT_MAX; below 1 GiB) are read, whatever its size is. */
GARRET_PUBLIC int garret_app_artifact_read(struct garret_app_run *run, const char *path,
					   uint64_t max_bytes, struct garret_app_artifact *ret,
					   struct garret_error *err);
GARRET_PUBLIC void garret_app_artifact_release(struct garret_app_artifact *r);

/* ---- spills: outputs of tools that are too large for the context ---- */

#define GARRET_APP_SPILL_MEMORY (64u << 20) /* bytes in all, without a workspace */

/*
 * A store of outputs, for one thread at a time; the run must stay open.  In a workspace they are
 * below tool_output, which is reserved for them, and the run's list (shared with its delegates)
 * names those that were written, to be pruned when it is closed.  Without a workspace they are in
 * memory and go with the store.
 */
struct garret_app_spill;
GARRET_PUBLIC struct garret_app_spill *garret_app_spill_new(struct garret_app_run *run);
/* Returns NULL; NULL is fine. */
GARRET_PUBLIC struct garret_app_spill *garret_app_spill_free(struct garret_app_spill *s);
/*
 * Keep an output as tool_output/<run>/<call>.<retry>.  *ret_handle (malloc()ed) is the path
 * that the workspace resolves that to.  A call's id comes from a model: one that isn't a plain word of at
 * most 64 letters, digits and "._-" stands there as a hash of it, so that no two are the same file.
 * A workspace that refuses is an error here, with its code; nothing is in the run's list then.
 */
GARRET_PUBLIC int garret_app_spill_write(struct garret_app_spill *s, const char *call,
					 unsigned retry, const void *data, size_t n,
					 char **ret_handle, struct garret_error *err);
/*
 * From offset on, at most `bytes` (0: the whole, whatever offset is).  NOT_FOUND for what is no
 * handle: not below tool_output of this workspace, or nothing is there.
 */
GARRET_PUBLIC int garret_app_spill_read(struct garret_app_spill *s, const char *handle,
					uint64_t offset, size_t bytes, struct garret_bytes *ret,
					struct garret_error *err);

#define GARRET_APP_OUTPUT_LIMIT (48u << 10)
#define GARRET_APP_OUTPUT_HEAD (4u << 10)
#define GARRET_APP_OUTPUT_LEAST 512

struct garret_app_output {
	size_t size;
	const char *call; /* and retry: as of garret_app_spill_write() */
	unsigned retry;
	const void *data; /* any bytes; as text it is repaired */
	size_t bytes;
	/* Bytes that may go to the model, at least GARRET_APP_OUTPUT_LEAST; 0: GARRET_APP_OUTPUT_LIMIT. */
	size_t limit;
	size_t head; /* bytes shown of one that was spilled; 0: GARRET_APP_OUTPUT_HEAD, or less to fit */
};
struct garret_app_reduced {
	char *text;     /* instead of the output, within the limit; NULL: it goes as it is */
	char *handle;   /* of the whole; NULL: it wasn't spilled */
	bool truncated; /* it was cut and the rest is lost: the workspace refused */
	enum garret_code refused;
};
/*
 * An output within the limit is left alone.  A larger one is spilled, and the text is its
 * beginning and its handle; when that is refused, the text is as much of it as fits, visibly cut.
 */
GARRET_PUBLIC int garret_app_reduce(struct garret_app_spill *s,
				    const struct garret_app_output *output,
				    struct garret_app_reduced *ret, struct garret_error *err);
GARRET_PUBLIC void garret_app_reduced_release(struct garret_app_reduced *r);

/* ---- skills ---- */

#define GARRET_APP_SKILL_BODY "SKILL.md"
#define GARRET_APP_SKILL_MAX_BYTES (256u << 10) /* of a file that is proposed */
#define GARRET_APP_SKILL_MAX_FILES 200          /* that are proposed, in all */

struct garret_app_skill_file {
	const char *name; /* one component */
	const void *data;
	size_t bytes;
};
struct garret_app_skill {
	size_t size;
	const char *name;        /* [A-Za-z0-9][A-Za-z0-9._-]{0,63}: the name of its directory */
	const char *description; /* UTF-8 */
	const char *body;        /* UTF-8, without front matter */
	const struct garret_app_skill_file *files;
	size_t n_files;
};
struct garret_app_skills_staged {
	size_t written;        /* files */
	size_t refused;        /* files that aren't there: the workspace, or a name that is none */
	enum garret_code code; /* what it said last of those; INVALID of a name */
};
/*
 * Put them at skills/<name>/SKILL.md (with front matter: name, description) and beside it, over
 * what is there.  The run remembers what it staged.  It never fails the run.
 */
GARRET_PUBLIC int garret_app_skills_stage(struct garret_app_run *run,
					  const struct garret_app_skill *skills, size_t n,
					  struct garret_app_skills_staged *ret,
					  struct garret_error *err);

enum garret_app_proposal_kind {
	GARRET_APP_PROPOSAL_BODY,     /* SKILL.md of a staged skill was changed */
	GARRET_APP_PROPOSAL_RESOURCE, /* a file beside it is new or was changed */
	GARRET_APP_PROPOSAL_SKILL,    /* SKILL.md of a skill that this run didn't stage */
};
struct garret_app_proposal {
	enum garret_app_proposal_kind kind;
	char *skill, *file; /* names; file is GARRET_APP_SKILL_BODY of a body */
	char *path;
	uint8_t *data; /* the whole file, with a NUL behind it */
	size_t bytes;
	bool is_new;       /* nothing of that path was staged */
	char *description; /* of a body: as its front matter says, "" without; else NULL */
	const char *body;  /* of a body: what is behind the front matter, inside data; else NULL */
};
struct garret_app_proposal_refused {
	char *path;
	const char *why; /* static text */
};
struct garret_app_proposals {
	struct garret_app_proposal *proposal;
	size_t n;
	struct garret_app_proposal_refused *refused; /* with the reason; not proposed */
	size_t n_refused;
	enum garret_code code; /* why nothing could be collected; GARRET_OK */
};
/*
 * What the run changed in skills/, compared with what it staged: proposals for a person, never an
 * edit.  Exactly skills/<name>/<file>: what is nested deeper belongs to no skill, links are not
 * followed.  Deleted files are no change.  A file above GARRET_APP_SKILL_MAX_BYTES is refused, not
 * cut.  A skill whose SKILL.md is missing or unusable is refused whole.
 *
 * Front matter is what stands between a first line "---" and the next: lines of `key: value`, each
 * key once.  A value is plain (which may go on in indented lines), quoted ('...', or "..." as in
 * JSON), a block (| or >, with + or -), a list in [] on one line, or nothing with one indented level
 * of `key: value` or `- value` below it; comments, blank lines.  Everything else of YAML (anchors,
 * tags, {}, tabs, ...) is mangled, and refused, as are a description that is no text and what isn't
 * UTF-8.
 */
GARRET_PUBLIC int garret_app_skills_collect(struct garret_app_run *run,
					    struct garret_app_proposals *ret,
					    struct garret_error *err);
GARRET_PUBLIC void garret_app_proposals_release(struct garret_app_proposals *r);

/* ---- files that go with a channel's reply ---- */

#define GARRET_APP_REPLY_FILES 3
#define GARRET_APP_REPLY_BYTES (8u << 20) /* of each */
#define GARRET_APP_SNAPSHOT_DEPTH 32
#define GARRET_APP_SNAPSHOT_ENTRIES 20000

/* Which paths there are. */
struct garret_app_snapshot;
/*
 * *ret NULL: it couldn't be taken (or there is more than a snapshot holds), and nothing will be
 * posted: what is new couldn't be told.
 */
GARRET_PUBLIC int garret_app_snapshot_take(struct garret_app_run *run,
					   struct garret_app_snapshot **ret,
					   struct garret_error *err);
/* Returns NULL; NULL is fine. */
GARRET_PUBLIC struct garret_app_snapshot *garret_app_snapshot_free(struct garret_app_snapshot *s);

struct garret_app_reply_file {
	char *path, *name;
	uint8_t *data;
	size_t bytes;
};
struct garret_app_reply {
	struct garret_app_reply_file file[GARRET_APP_REPLY_FILES];
	size_t n;
	size_t left_out; /* new files that aren't here: too many, too large, or they can't be read */
	enum garret_code code; /* why there is none; GARRET_OK */
};
/*
 * Files that are new since `before` (NULL: nothing is posted), by path: shallow ones first, then
 * by name; nothing below uploads, skills and tool_output, no links.
 */
GARRET_PUBLIC int garret_app_reply_files(struct garret_app_run *run,
					 const struct garret_app_snapshot *before,
					 struct garret_app_reply *ret, struct garret_error *err);
GARRET_PUBLIC void garret_app_reply_release(struct garret_app_reply *r);

/* ---- browsing, for people ---- */

#define GARRET_APP_BROWSE_DEPTH 6
#define GARRET_APP_BROWSE_ENTRIES 2000
#define GARRET_APP_THUMBNAILS 24              /* of a page */
#define GARRET_APP_THUMBNAIL_BYTES (4u << 20) /* of its source */
/*
 * The pictures are the application's to make: it reads the source, refuses one of more than
 * GARRET_APP_THUMBNAIL_PIXELS before it decodes it, and shrinks it to fit WIDTH x HEIGHT.
 */
#define GARRET_APP_THUMBNAIL_PIXELS (16u << 20)
#define GARRET_APP_THUMBNAIL_WIDTH 160
#define GARRET_APP_THUMBNAIL_HEIGHT 128

struct garret_app_browsed {
	char *path; /* relative */
	enum garret_type type;
	uint64_t bytes; /* GARRET_SIZE_UNKNOWN */
	int64_t modified_ns;
	bool thumbnail; /* an image of a size that one is made of, among the first of the page */
};
struct garret_app_browse {
	struct garret_app_browsed *entry;
	size_t n;
	bool truncated;        /* there is more, or something lies deeper */
	char *unreadable;      /* "unreadable because ..."; never an empty list instead */
	enum garret_code code; /* the same for a program; GARRET_OK */
};
/* What is in a workspace, such as a row's document (garret_app_document_open()). */
GARRET_PUBLIC int garret_app_browse(struct garret_workspace *w, struct garret_app_browse *ret,
				    struct garret_error *err);
/*
 * The same of a list that came another way, such as a service's archive routes, which start
 * nothing: `name` of an entry is its path below the working directory.  list NULL: it couldn't
 * be had, and why.  No I/O.  What the platform keeps for itself (skills, tool_output) is hidden, as
 * is a name that leads out.
 */
GARRET_PUBLIC void garret_app_browse_list(const struct garret_list *list,
					  const struct garret_error *why,
					  struct garret_app_browse *ret);
GARRET_PUBLIC void garret_app_browse_release(struct garret_app_browse *r);

#endif
