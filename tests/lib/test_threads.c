/* Threads of one context: what one waits for in the loop hinders nobody. */
#include <arpa/inet.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "garret/garret.h"
#include "unit/test.h"

/* A service that takes connections and never answers. */
static int silent_service(char ret_url[64])
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } };
	socklen_t n = sizeof(at);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_true(fd >= 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof(at)), 0);
	assert_int_equal(listen(fd, 8), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &n), 0);
	(void)snprintf(ret_url, 64, "service_url=http://127.0.0.1:%u", ntohs(at.sin_port));
	return fd;
}

static void *wait_for_it(void *arg)
{
	struct garret_workspace *w = arg;
	char *dir = NULL;

	return (void *)(intptr_t)garret_working_dir(w, &dir, NULL);
}

static void use_a_document(struct garret_context *c)
{
	struct garret_provider *p = NULL;
	struct garret_workspace *w = NULL;

	assert_int_equal(garret_provider_open_settings(c, "state", NULL, &p, NULL), 0);
	assert_int_equal(garret_provider_attach(p, NULL, &w, NULL), 0);
	assert_int_equal(garret_write(w, "f", "1", 1, 0, NULL), 0);
	garret_workspace_free(w);
	garret_provider_free(p);
}

TEST(a_provider_ends_while_another_thread_waits)
{
	char url[64];
	const char *const settings[] = { url, "token=t", NULL };
	const int fd = silent_service(url);
	struct garret_context *c = NULL;
	struct garret_provider *p = NULL;
	struct garret_workspace *w = NULL;
	struct garret_cancel *cancel = NULL;
	pthread_t t;
	void *rc = NULL;
	int peer;

	assert_int_equal(garret_context_new(NULL, &c, NULL), 0);
	assert_int_equal(garret_cancel_new(c, &cancel, NULL), 0);
	assert_int_equal(garret_provider_open_settings(c, "sandboxd", settings, &p, NULL), 0);
	assert_int_equal(garret_provider_attach(p, NULL, &w, NULL), 0);
	garret_workspace_set_cancel(w, cancel);
	assert_int_equal(pthread_create(&t, NULL, wait_for_it, w), 0);
	peer = accept(fd, NULL, NULL); /* now it waits */
	assert_true(peer >= 0);
	(void)alarm(20); /* it hung */
	use_a_document(c);
	(void)alarm(0);
	garret_cancel(cancel);
	assert_int_equal(pthread_join(t, &rc), 0);
	assert_int_equal((int)(intptr_t)rc, -GARRET_CANCELLED);
	(void)close(peer);
	(void)close(fd);
	garret_workspace_free(w);
	garret_provider_free(p);
	garret_cancel_free(cancel);
	assert_null(garret_context_free(c));
}

static double cpu_seconds(void)
{
	struct timespec t;

	assert_int_equal(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t), 0);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

TEST(threads_that_wait_cost_nothing)
{
	char url[64];
	const char *const settings[] = { url, "token=t", NULL };
	const int fd = silent_service(url);
	struct garret_context *c = NULL;
	struct garret_provider *p = NULL;
	struct garret_workspace *w[3];
	struct garret_cancel *cancel = NULL;
	pthread_t t[3];
	int peer[3];
	double before;

	assert_int_equal(garret_context_new(NULL, &c, NULL), 0);
	assert_int_equal(garret_cancel_new(c, &cancel, NULL), 0);
	assert_int_equal(garret_provider_open_settings(c, "sandboxd", settings, &p, NULL), 0);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(garret_provider_attach(p, NULL, &w[i], NULL), 0);
		garret_workspace_set_cancel(w[i], cancel);
		assert_int_equal(pthread_create(&t[i], NULL, wait_for_it, w[i]), 0);
		peer[i] = accept(fd, NULL, NULL);
		assert_true(peer[i] >= 0);
	}
	before = cpu_seconds();
	(void)usleep(500000);
	assert_true(cpu_seconds() - before < 0.1);
	garret_cancel(cancel);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(pthread_join(t[i], NULL), 0);
		(void)close(peer[i]);
		garret_workspace_free(w[i]);
	}
	(void)close(fd);
	garret_provider_free(p);
	garret_cancel_free(cancel);
	assert_null(garret_context_free(c));
}

TEST_MAIN
