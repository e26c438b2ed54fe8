/*
 * Leaving HTTP: after 101 the library suspends the connection for good and only
 * closes it when it is told to.
 *
 * It must not be told from inside its own callback, where it still uses the
 * connection: so ends are put off until the end of the round.
 */
#include <assert.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

#include "base/mem.h"
#include "net/http_internal.h"

/* Is WORD one of the comma-separated words of a header? */
static bool has_word(const char *list, const char *word)
{
	size_t n = strlen(word);

	while (list && *list) {
		list += strspn(list, ", \t");
		if (!strncasecmp(list, word, n) && strchr(", \t", list[n]))
			return true;
		list += strcspn(list, ",");
	}
	return false;
}

bool http_wants_upgrade(const struct http_request *rq, const char *protocol)
{
	return rq->needs_host && has_word(http_header(rq, "connection"), "upgrade") &&
	       has_word(http_header(rq, "upgrade"), protocol);
}

static void on_upgraded(void *cls, struct MHD_Connection *mc, void *con_cls, const char *extra,
			size_t n, MHD_socket fd, struct MHD_UpgradeResponseHandle *urh)
{
	struct http_request *rq = cls;

	(void)mc, (void)con_cls;
	rq->phase = RQ_UPGRADED;
	rq->upgrade = urh;
	rq->upgraded(rq, fd, extra, n);
}

void http_upgrade(struct http_request *rq, const char *protocol, http_upgraded started)
{
	struct MHD_Response *r = MHD_create_response_for_upgrade(on_upgraded, rq);
	void (*gone)(void *) = rq->on_gone;

	rq->upgraded = started;
	http_add_header(rq, "upgrade", protocol);
	http_set_response(rq, MHD_HTTP_SWITCHING_PROTOCOLS, NULL, r);
	rq->on_gone = gone; /* an answer is short, this is not: the server may stop meanwhile */
}

void http_upgrade_close(struct http_request *rq)
{
	struct MHD_UpgradeResponseHandle *urh = rq->upgrade;

	if (!urh)
		return;
	rq->upgrade = NULL;
	loop_later_cancel(rq->httpd->loop, &rq->upgrade_end);
	(void)MHD_upgrade_action(urh, MHD_UPGRADE_ACTION_CLOSE);
	httpd_kick(rq->httpd);
}

static void on_end(struct loop_later *l)
{
	http_upgrade_close(l->ctx);
}

void http_end_upgrade(struct http_request *rq, int fd)
{
	assert(rq->phase == RQ_UPGRADED);
	rq->on_gone = NULL;
	/* The copy would hold the connection open: the client has to see its end. */
	(void)shutdown(fd, SHUT_WR);
	httpd_linger(rq->httpd, fd);
	loop_later_add(rq->httpd->loop, &rq->upgrade_end, on_end, rq);
}
