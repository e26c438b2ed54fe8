#include "daemon/place.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/auto.h"
#include "base/fd.h"
#include "base/text.h"
#include "provider/remote.h"

int place_docker(struct loop *l, const struct config *c, const struct state *s, int runs_fd,
		 struct place *ret, struct garret_error *err)
{
	const struct remote_table *table;
	autofree char *init = program_beside("garret-init");
	char owner[2 * sizeof(s->owner) + 1];
	struct docker_config config = { .loop = l,
					.owner = owner,
					.runs_fd = runs_fd,
					.init = init,
					.work_dir = c->work_dir,
					.sessions = true,
					.remove_closed = !c->persist_containers,
					.workspace_root = c->workspace_root };
	int rc = remote_load(&table, err);

	hex_encode(s->owner, sizeof(s->owner), owner);
	if (rc == 0)
		rc = table->docker_new(&config, &ret->provider, err);
	if (rc < 0)
		return rc;
	ret->ops = table->docker;
	ret->free = table->docker_free;
	return 0;
}

int place_native(const struct native_config *native, struct place *ret, struct garret_error *err)
{
	int rc = native_new(native, &ret->provider, err);

	if (rc < 0)
		return rc;
	ret->ops = &native_ops;
	ret->free = native_free;
	return 0;
}

void place_release(struct place *p)
{
	if (p->provider)
		p->provider = p->free(p->provider);
}

int place_docker_group(gid_t *ret, struct garret_error *err)
{
	const char *host = getenv("DOCKER_HOST");
	const char *path = host && !strncmp(host, "unix://", 7) ? host + 7 : "/var/run/docker.sock";
	const bool context = !host && (getenv("DOCKER_CONTEXT") || getenv("DOCKER_CONFIG"));
	struct stat st;

	*ret = (gid_t)-1;
	if (host && path != host + 7)
		return 0;
	if (stat(path, &st) < 0) {
		if (context)
			return 0;
		/* Later its group can't be had any more. */
		return garret_fail_errno(err,
					 "Docker's socket %s (start Docker first, or set "
					 "DOCKER_HOST)",
					 path);
	}
	if (st.st_mode & 0006) /* for everybody */
		return 0;
	if (!st.st_gid)
		return garret_fail(
			err, GARRET_DENIED,
			"%s belongs to root's group: garretd, which isn't root, needs a group that may use it "
			"(dockerd --group)",
			path);
	*ret = st.st_gid;
	return 0;
}
