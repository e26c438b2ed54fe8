#include "engine/layer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "base/log.h"
#include "base/text.h"
#include "base/time.h"
#include "engine/reaper.h"

#define NOTE "layer" /* in it: version, runtime, boot */
#define TEXT_MAX 256

int layer_remove(struct engine *e, const char *id, struct garret_error *err)
{
	char name[48];

	/* The same id may have another one before this is deleted. */
	(void)snprintf(name, sizeof(name), "layer-%016llx-%u", (unsigned long long)wall_us(),
		       e->n_removed++);
	if (renameat2(e->layers_fd, id, e->trash_fd, name, RENAME_NOREPLACE) < 0) {
		int rc = garret_fail_errno(err, "remove the write layer of %s", id);

		if (errno != ENOENT)
			log_warn("layer_stuck", "session=%s errno=%d", id, errno);
		return rc;
	}
	reaper_poke(e);
	return 0;
}

void layer_touch(struct engine *e, const char *id)
{
	(void)utimensat(e->layers_fd, id, NULL, AT_SYMLINK_NOFOLLOW);
}

static enum engine_layer judge(const struct engine *e, const char *id, const char *runtime)
{
	enum { VERSION, RUNTIME, BOOT, WORDS };
	char path[ENGINE_ID_MAX + 16], text[TEXT_MAX], *w[WORDS];

	(void)snprintf(path, sizeof(path), "%s/" NOTE, id);
	if (read_file_at(e->layers_fd, path, text, sizeof(text)) < 0 ||
	    split_words(text, w, WORDS) != WORDS || strcmp(w[VERSION], "1") != 0)
		return ENGINE_LAYER_SUSPECT; /* its note is torn: so may be the rest */
	if (strcmp(w[RUNTIME], runtime) != 0)
		return ENGINE_LAYER_OTHER_RUNTIME;
	if (strcmp(w[BOOT], e->boot) != 0 && !e->conf.keep_suspect_layers)
		return ENGINE_LAYER_SUSPECT;
	return ENGINE_LAYER_USED;
}

bool layer_find(struct engine *e, const char *id, const char *runtime, enum engine_layer *ret_fate)
{
	struct stat st;

	*ret_fate = ENGINE_LAYER_NONE;
	if (fstatat(e->layers_fd, id, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return false;
	*ret_fate = judge(e, id, runtime);
	if (*ret_fate == ENGINE_LAYER_USED)
		return true;
	log_info("layer_dropped", "session=%s why=%s", id,
		 *ret_fate == ENGINE_LAYER_SUSPECT ? "boot" : "runtime");
	(void)layer_remove(e, id, NULL);
	return false;
}

int layer_keep(struct engine *e, const char *slot, const char *id, const char *runtime,
	       const char *boot)
{
	char path[64], text[TEXT_MAX];
	autoclose int fd = -EBADF;
	int n;

	(void)snprintf(path, sizeof(path), "%s/" NOTE, slot);
	n = snprintf(text, sizeof(text), "1 %s %s\n", runtime, boot);
	fd = openat(e->sessions_fd, path, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC,
		    0600);
	if (fd < 0 || write_full(fd, text, (size_t)n) < 0)
		return -errno;
	(void)layer_remove(e, id, NULL);
	return renameat2(e->sessions_fd, slot, e->layers_fd, id, RENAME_NOREPLACE) < 0 ? -errno : 0;
}
