/* GET /metrics: counters in Prometheus' text format. */
#include "api/handlers.h"
#include "api/wire.h"
#include "base/strbuf.h"

struct line {
	const char *name, *type, *help;
	const char *label; /* with its value, or NULL */
	uint64_t value;
};

static void put(struct strbuf *out, const struct line *l, const struct line *before)
{
	/* A family is described once, in front of its first line. */
	if (!before || before->name != l->name) {
		strbuf_addf(out, "# HELP garret_%s %s\n", l->name, l->help);
		strbuf_addf(out, "# TYPE garret_%s %s\n", l->name, l->type);
	}
	strbuf_addf(out, "garret_%s", l->name);
	if (l->label)
		strbuf_addf(out, "{%s}", l->label);
	strbuf_addf(out, " %llu\n", (unsigned long long)l->value);
}

void metrics_get(struct call *c)
{
	static const char sessions[] = "sessions", runs[] = "runs_total",
			  files[] = "file_operations_total", happened[] = "session_events_total";
	const struct service_metrics m = service_metrics(c->service);
	const struct httpd_counts http = httpd_counts(c->api->httpd);
	const struct line lines[] = {
		{ "up", "gauge", "1 when the engine answers", NULL, m.ready },
		{ sessions, "gauge", "Sessions by state", "state=\"running\"", m.running },
		{ sessions, "gauge", NULL, "state=\"hibernated\"", m.asleep },
		{ sessions, "gauge", NULL, "state=\"opening\"", m.opening },
		{ sessions, "gauge", NULL, "state=\"closing\"", m.closing },
		{ sessions, "gauge", NULL, "state=\"dead\"", m.dead },
		{ "runs_live", "gauge", "Commands that run now", NULL, m.runs_live },
		{ "operations_in_flight", "gauge", "Requests that use a session now", NULL,
		  m.in_flight },
		{ "connections", "gauge", "Connections of clients", NULL, http.connections },
		{ runs, "counter", "Commands that ended since the start", "ok=\"true\"",
		  m.runs_ok },
		{ runs, "counter", NULL, "ok=\"false\"", m.runs_failed },
		{ files, "counter", "File operations since the start", "ok=\"true\"", m.files_ok },
		{ files, "counter", NULL, "ok=\"false\"", m.files_failed },
		{ happened, "counter", "What happened to sessions since the start", "kind=\"open\"",
		  m.opened },
		{ happened, "counter", NULL, "kind=\"close\"", m.closed },
		{ happened, "counter", NULL, "kind=\"sleep\"", m.slept },
		{ happened, "counter", NULL, "kind=\"wake\"", m.woken },
		{ happened, "counter", NULL, "kind=\"died\"", m.died },
		{ "log_seq", "counter", "The newest entry of the service's log", NULL, m.events },
	};
	struct strbuf out = STRBUF_INIT;

	for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++)
		put(&out, &lines[i], i ? &lines[i - 1] : NULL);
	http_answer_buf(c->rq, 200, "text/plain; version=0.0.4; charset=utf-8", &out);
}
