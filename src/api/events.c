/* GET /sessions/{session_id}/events: the activity log, for clients that poll. */
#include "api/handlers.h"
#include "api/wire.h"

static void each(void *ctx, const struct session_event *e)
{
	wire_event(ctx, e);
}

void events_list(struct call *c)
{
	const struct events_values *v = c->values;
	struct strbuf out = STRBUF_INIT;
	uint64_t latest = 0;

	json_open(&out, '{');
	json_put_key(&out, "events");
	json_open(&out, '[');
	if (!service_events(c->service, c->session_id, (uint64_t)v->after, each, &out, &latest)) {
		strbuf_release(&out);
		call_refuse(c, 404, "No such session: %s", c->session_id);
		return;
	}
	json_close(&out, ']');
	wire_number(&out, "latest_seq", (int64_t)latest);
	json_close(&out, '}');
	call_answer(c, 200, &out);
}
