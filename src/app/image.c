/* Images that a model made, in the workspace. */
#include <string.h>

#include "app/files_impl.h"
#include "base/auto.h"
#include "base/mem.h"

void garret_app_stored_release(struct garret_app_stored *r)
{
	free(r->path);
	free(r->text);
	memset(r, 0, sizeof(*r));
}

int garret_app_image_store(struct garret_app_run *run, const char *name, const void *data,
			   size_t bytes, struct garret_app_stored *ret, struct garret_error *err)
{
	struct garret_workspace *w = app_files_workspace(run);
	char safe[GARRET_APP_SAFE_NAME];
	autofree char *path = NULL;
	struct garret_error told = { 0 };
	int rc = 0;

	memset(ret, 0, sizeof(*ret));
	if (!data)
		return garret_fail(err, GARRET_INVALID, "data: the image, not NULL");
	garret_app_safe_name(name ? name : "", safe);
	path = xasprintf("output/%s", safe);
	if (w)
		rc = garret_write(w, path, data, bytes, 0, &told);
	if (rc == -GARRET_CANCELLED)
		return app_answered(rc, &told, err);
	ret->refused = (enum garret_code) - rc;
	if (rc < 0)
		ret->text = xstrdup("The image was made, but the workspace would not take it: "
				    "it has no path there.");
	else if (!w)
		ret->text = xstrdup("The image was made; there is no workspace to keep it in.");
	else
		ret->text = xasprintf("The image was made; it is at %s.", path);
	if (w && rc == 0)
		ret->path = take_ptr(&path);
	return 0;
}
