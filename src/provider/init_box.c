#include "provider/init_box_impl.h"

#include <stdlib.h>

#include "base/mem.h"

void init_box_begin(struct init_box *b, struct loop *loop, int runs_fd, const char *runs_name)
{
	b->loop = loop;
	b->runs_fd = runs_fd;
	b->runs_name = runs_name ? xstrdup(runs_name) : NULL;
	list_init(&b->runs);
	files_init(b);
}

void init_box_drop(struct init_box *b)
{
	loop_timer_clear(&b->spool_retry);
	b->init = init_client_free(b->init);
	runs_end_all(b);
	init_box_drop_spools(b);
	files_end_all(b);
}

void init_box_forget(struct init_box *b)
{
	runs_forget(b);
	files_forget(b);
}

void init_box_release(struct init_box *b)
{
	free(b->runs_name);
	b->runs_name = NULL;
}

void init_box_on_done(void *ctx, uint64_t request, const struct garret_error *err)
{
	files_on_start(ctx, request, err);
	runs_on_done(ctx, request, err);
}
