#include "provider/remote.h"

__attribute__((visibility("default"))) const struct remote_table garret_remote_table = {
	.version = REMOTE_TABLE,
	.spec_bytes = sizeof(struct box_spec) + sizeof(struct provider_ops),
	.sandboxd = &sandboxd_ops,
	.sandboxd_new = sandboxd_new,
	.sandboxd_free = sandboxd_free,
	.sandboxd_is_ours = sandboxd_is_ours,
	.docker = &docker_ops,
	.docker_new = docker_new,
	.docker_free = docker_free,
};
