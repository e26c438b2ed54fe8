#include "proto/init.h"

#include <endian.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

void init_begin(struct put *p, void *buf, uint16_t type, uint64_t request)
{
	put_init(p, buf, INIT_FRAME_MAX);
	put_u32(p, 0);
	put_u16(p, type);
	put_u16(p, 0);
	put_u64(p, request);
}

uint32_t init_end(struct put *p)
{
	uint32_t n;

	if (p->bad)
		return 0;
	n = htole32((uint32_t)p->len);
	memcpy(p->buf, &n, sizeof(n));
	return (uint32_t)p->len;
}

bool init_parse(struct get *g, const void *frame, size_t n, struct init_header *ret)
{
	get_init(g, frame, n);
	ret->length = get_u32(g);
	ret->type = get_u16(g);
	(void)get_u16(g);
	ret->request = get_u64(g);
	return !g->bad && ret->length == n;
}

void init_put_run(struct put *p, const struct init_run *run)
{
	put_bytes(p, run->id, INIT_RUN_ID);
	put_u32(p, run->flags);
	put_u32(p, run->timeout_ms);
	put_u64(p, run->output_limit);
	put_u16(p, run->rows);
	put_u16(p, run->columns);
	put_u32(p, run->argc);
	put_u32(p, run->envc);
	put_str(p, run->cwd);
	put_u32(p, run->strings_bytes);
	if (!(run->flags & INIT_RUN_BODY_FD))
		put_bytes(p, run->strings, run->strings_bytes);
}

bool init_get_run(struct get *g, struct init_run *ret)
{
	const uint32_t known =
		INIT_RUN_FDS | INIT_RUN_STREAM | INIT_RUN_PTY | INIT_RUN_STDIN | INIT_RUN_BODY_FD;
	size_t left;

	get_bytes(g, ret->id, INIT_RUN_ID);
	ret->flags = get_u32(g);
	ret->timeout_ms = get_u32(g);
	ret->output_limit = get_u64(g);
	ret->rows = get_u16(g);
	ret->columns = get_u16(g);
	ret->argc = get_u32(g);
	ret->envc = get_u32(g);
	ret->cwd = get_str(g, INIT_CWD_MAX);
	ret->strings_bytes = get_u32(g);
	ret->strings = NULL;
	if (!(ret->flags & INIT_RUN_BODY_FD)) {
		ret->strings = get_rest(g, &left);
		if (left != ret->strings_bytes)
			return false;
	}
	return get_done(g) && !(ret->flags & ~known) && ret->argc >= 1 &&
	       ret->argc <= INIT_ARGC_MAX && ret->envc <= INIT_ARGC_MAX &&
	       ret->strings_bytes <= INIT_STRINGS_MAX && (!ret->cwd[0] || ret->cwd[0] == '/') &&
	       !(ret->flags & INIT_RUN_PTY && !(ret->flags & INIT_RUN_STREAM)) &&
	       !(ret->flags & INIT_RUN_FDS && ret->flags & (INIT_RUN_STREAM | INIT_RUN_STDIN));
}

bool init_strings(const uint8_t *strings, size_t bytes, uint32_t argc, uint32_t envc,
		  char ***ret_argv, char ***ret_envp)
{
	char **argv, **envp;
	struct get g;

	if (argc > INIT_ARGC_MAX || envc > INIT_ARGC_MAX)
		return false;
	get_init(&g, strings, bytes);
	argv = xcalloc(argc + 1, sizeof(*argv));
	envp = xcalloc(envc + 1, sizeof(*envp));
	for (uint32_t i = 0; i < argc; i++)
		argv[i] = (char *)(uintptr_t)get_str(&g, INIT_STRING_MAX);
	for (uint32_t i = 0; i < envc; i++) {
		envp[i] = (char *)(uintptr_t)get_str(&g, INIT_STRING_MAX);
		if (!strchr(envp[i], '=') || envp[i][0] == '=')
			g.bad = true;
	}
	if (!get_done(&g)) {
		free(argv);
		free(envp);
		return false;
	}
	*ret_argv = argv;
	*ret_envp = envp;
	return true;
}

void init_put_known(struct put *p, const struct init_known *k)
{
	put_bytes(p, k->id, INIT_RUN_ID);
	put_u32(p, k->flags);
	put_u8(p, k->ended);
	put_u64(p, k->age_us);
	put_u64(p, k->stdin_held);
	put_u8(p, k->stdin_ended);
}

void init_get_known(struct get *g, struct init_known *ret)
{
	get_bytes(g, ret->id, INIT_RUN_ID);
	ret->flags = get_u32(g);
	ret->ended = get_u8(g);
	ret->age_us = get_u64(g);
	ret->stdin_held = get_u64(g);
	ret->stdin_ended = get_u8(g);
}

void init_put_exit(struct put *p, const struct init_exit *e)
{
	put_u8(p, e->cause);
	put_u8(p, e->step);
	put_u8(p, e->oom);
	put_u8(p, e->spooled[0]);
	put_u8(p, e->spooled[1]);
	put_u32(p, (uint32_t)e->exit_code);
	put_u32(p, e->sys);
	put_u32(p, e->spool_index);
	put_u32(p, e->background);
	put_u64(p, e->total[0]);
	put_u64(p, e->total[1]);
	put_u64(p, e->wall_us);
	put_u64(p, e->user_us);
	put_u64(p, e->system_us);
	put_u64(p, e->max_rss_bytes);
}

bool init_get_exit(struct get *g, struct init_exit *ret)
{
	ret->cause = get_u8(g);
	ret->step = get_u8(g);
	ret->oom = get_u8(g);
	ret->spooled[0] = get_u8(g);
	ret->spooled[1] = get_u8(g);
	ret->exit_code = (int32_t)get_u32(g);
	ret->sys = get_u32(g);
	ret->spool_index = get_u32(g);
	ret->background = get_u32(g);
	ret->total[0] = get_u64(g);
	ret->total[1] = get_u64(g);
	ret->wall_us = get_u64(g);
	ret->user_us = get_u64(g);
	ret->system_us = get_u64(g);
	ret->max_rss_bytes = get_u64(g);
	return get_done(g) && ret->cause < INIT_CAUSES && ret->step < INIT_STEPS &&
	       ret->exit_code >= 0 && ret->exit_code <= 255;
}
