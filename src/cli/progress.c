#include "cli/progress.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/time.h"
#include "cli/show.h"

#define BEGIN_MS 1000 /* what is over sooner needs no line */
#define EVERY_MS 200

void progress_begin(struct progress *p, const char *name, int64_t total)
{
	*p = (struct progress){ .name = name,
				.total = total,
				.started_ms = now_ms(),
				.terminal = isatty(STDERR_FILENO) == 1 };
}

static void show(struct progress *p, uint64_t now)
{
	autobuf struct strbuf name = STRBUF_INIT;
	const double mib = 1048576.0, seconds = (double)(now - p->started_ms) / 1000;

	show_escape(&name, p->name, strlen(p->name));
	(void)fprintf(stderr, "\r%.40s  %.1f MiB", name.buf, (double)p->done / mib);
	if (p->total > 0)
		(void)fprintf(stderr, " of %.1f, %.0f %%", (double)p->total / mib,
			      100.0 * (double)p->done / (double)p->total);
	(void)fprintf(stderr, "  %.1f MiB/s\033[K", (double)p->done / mib / seconds);
	(void)fflush(stderr);
	p->shown = true;
	p->shown_ms = now;
}

void progress_add(struct progress *p, uint64_t bytes)
{
	uint64_t now;

	p->done += bytes;
	if (!p->terminal)
		return;
	now = now_ms();
	if (now - p->started_ms >= BEGIN_MS && now - p->shown_ms >= EVERY_MS)
		show(p, now);
}

void progress_end(struct progress *p)
{
	if (p->shown)
		(void)fputs("\r\033[K", stderr);
	p->shown = false;
}
