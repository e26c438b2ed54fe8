/* Artifacts: what a file of the workspace holds, or what the model is told instead. */
#include <stdlib.h>
#include <string.h>

#include "app/files_impl.h"
#include "base/mem.h"

void garret_app_artifact_release(struct garret_app_artifact *r)
{
	free(r->data);
	free(r->text);
	memset(r, 0, sizeof(*r));
}

static enum garret_app_artifact_answer answer_of(int rc)
{
	switch (-rc) {
	case GARRET_DENIED:
	case GARRET_OUTSIDE:
	case GARRET_READ_ONLY:
		return GARRET_APP_ARTIFACT_REFUSED;
	case GARRET_TOO_LARGE:
	case GARRET_OUTPUT_LIMIT:
		return GARRET_APP_ARTIFACT_TOO_LARGE;
	default:
		return app_of_path(rc) ? GARRET_APP_ARTIFACT_OTHER_PATH
				       : GARRET_APP_ARTIFACT_FAILED;
	}
}

static void say(struct garret_app_artifact *ret, const char *path, uint64_t max_bytes)
{
	static const char *const texts[] = {
		[GARRET_APP_ARTIFACT_REFUSED] = "it may not be read.",
		[GARRET_APP_ARTIFACT_OTHER_PATH] =
			"there is nothing to publish at that path. Give the path of a file "
			"that holds something.",
		[GARRET_APP_ARTIFACT_CONTENT] =
			"there is no workspace to read it from. Give the content itself.",
		[GARRET_APP_ARTIFACT_FAILED] =
			"the workspace failed to read it. It may work later; the content itself "
			"can be given instead.",
	};
	autobuf struct strbuf out = STRBUF_INIT;

	strbuf_addch(&out, '"');
	app_label(&out, path);
	strbuf_addstr(&out, "\": ");
	if (ret->answer == GARRET_APP_ARTIFACT_TOO_LARGE)
		strbuf_addf(&out, "it is too large: at most %ju bytes are published.",
			    (uintmax_t)max_bytes);
	else
		strbuf_addstr(&out, texts[ret->answer]);
	ret->text = strbuf_detach(&out, NULL);
}

int garret_app_artifact_read(struct garret_app_run *run, const char *path, uint64_t max_bytes,
			     struct garret_app_artifact *ret, struct garret_error *err)
{
	struct garret_workspace *w = app_files_workspace(run);
	const uint64_t most = max_bytes ? max_bytes : GARRET_APP_ARTIFACT_MAX;
	struct garret_error told = { 0 };
	struct garret_bytes b = { 0 };
	int rc = 0;

	memset(ret, 0, sizeof(*ret));
	if (!path)
		return garret_fail(err, GARRET_INVALID, "path: one is wanted, not NULL");
	if (most >= GARRET_READ_MAX)
		return garret_fail(err, GARRET_INVALID, "max_bytes: below %u", GARRET_READ_MAX);
	if (w) /* one byte more tells that there is more; its size needs no operation of its own */
		rc = app_read_file(w, path, 0, most, &b, &told);
	if (rc == -GARRET_CANCELLED)
		return app_answered(rc, &told, err);
	ret->refused = (enum garret_code) - rc;
	if (!w)
		ret->answer = GARRET_APP_ARTIFACT_CONTENT;
	else if (rc < 0)
		ret->answer = answer_of(rc);
	else if (!b.n)
		ret->answer = GARRET_APP_ARTIFACT_OTHER_PATH;
	if (ret->answer) {
		garret_bytes_release(&b);
		say(ret, path, most);
		return 0;
	}
	ret->data = b.data;
	ret->bytes = b.n;
	return 0;
}
