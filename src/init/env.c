/*
 * A request may bring 16,384 variables, so places are found through a table of
 * hashes; with a linear search pid 1 would be deaf for half a second.
 */
#include "init/env.h"

#include <string.h>

#include "base/auto.h"
#include "base/mem.h"
#include "init/init.h"

/* clang-format off */
const char *const init_base_env[] = {
	"PATH=/usr/local/bin:/usr/bin:/bin",
	"HOME=/home/agent",
	"USER=agent",
	"LOGNAME=agent",
	"SHELL=/bin/sh",
	"LANG=C.UTF-8",
	"GIT_CONFIG_COUNT=5",
	"GIT_CONFIG_KEY_0=safe.directory",
	"GIT_CONFIG_VALUE_0=*",
	"GIT_CONFIG_KEY_1=user.name",
	"GIT_CONFIG_VALUE_1=Agent",
	"GIT_CONFIG_KEY_2=user.email",
	"GIT_CONFIG_VALUE_2=agent@sandbox.local",
	"GIT_CONFIG_KEY_3=init.defaultBranch",
	"GIT_CONFIG_VALUE_3=main",
	"GIT_CONFIG_KEY_4=advice.detachedHead",
	"GIT_CONFIG_VALUE_4=false",
	"GIT_TERMINAL_PROMPT=0",
	"PYTHONUNBUFFERED=1",
	"PIP_DISABLE_PIP_VERSION_CHECK=1",
	"PIP_NO_INPUT=1",
	"PIP_ROOT_USER_ACTION=ignore",
	"UV_CONCURRENT_DOWNLOADS=2",
	"UV_CONCURRENT_INSTALLS=2",
	"UV_COMPILE_BYTECODE=1",
	"DEBIAN_FRONTEND=noninteractive",
	"NO_COLOR=1",
	"PAGER=cat",
	"GIT_PAGER=cat",
	NULL,
};
/* clang-format on */

/* The length of the name: as a program's getenv() would find it. */
static size_t name_bytes(const char *var)
{
	return strcspn(var, "=");
}

/* The place of var's name in the table: an empty one, or the one that has it. */
static uint32_t *place(uint32_t *table, uint32_t mask, char **out, const char *var)
{
	size_t n = name_bytes(var);
	uint32_t h = 2166136261u;

	for (size_t i = 0; i < n; i++)
		h = (h ^ (uint8_t)var[i]) * 16777619u;
	for (;; h++) {
		uint32_t *at = &table[h & mask];

		if (!*at || (strncmp(out[*at - 1], var, n) == 0 && out[*at - 1][n] == '='))
			return at;
	}
}

char **env_merge(const char *const *base, char **over, uint32_t n_over)
{
	uint32_t n_base = 0, n = 0, size = 64;
	autofree uint32_t *table = NULL;
	char **out;

	while (base[n_base])
		n_base++;
	while (size < 2 * (n_base + n_over))
		size *= 2;
	table = xcalloc(size, sizeof(*table));
	out = xcalloc(n_base + n_over + 1, sizeof(*out));
	for (uint32_t i = 0; i < n_base + n_over; i++) {
		char *var = i < n_base ? (char *)(uintptr_t)base[i] : over[i - n_base];
		uint32_t *at = place(table, size - 1, out, var);

		if (!*at)
			*at = ++n;
		out[*at - 1] = var;
	}
	return out;
}

const char *env_find(char **env, const char *name)
{
	size_t n = strlen(name);

	for (; *env; env++)
		if (strncmp(*env, name, n) == 0 && (*env)[n] == '=')
			return *env + n + 1;
	return NULL;
}
