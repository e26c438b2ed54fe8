/* What the files of the native provider share; nobody else includes this. */
#ifndef PROVIDER_NATIVE_IMPL_H
#define PROVIDER_NATIVE_IMPL_H

#include "base/list.h"
#include "provider/engine_client.h"
#include "provider/engine_link.h"
#include "provider/init_box.h"
#include "provider/native.h"

#define SOCKETS_AHEAD 8

struct control_socket {
	int fd;
	char name[48]; /* in ctl/ */
};

struct provider {
	struct control_socket ahead[SOCKETS_AHEAD];
	unsigned n_ahead;
	struct loop_timer refill;
	struct loop *loop;
	struct engine_client *engine;
	struct engine_link link;
	bool up;           /* the engine knows who we are */
	bool begun;        /* it did once: what comes now is another engine */
	bool keeper_gone;  /* what we are connected to is the last one */
	unsigned adopting; /* answers that are due before strays may be ended */
	struct engine_hello hello;
	int ctl_fd, runs_fd;
	struct list boxes;
	struct list forgetting; /* what is to be removed, and not yet said to be */
	struct native_config config;
};

struct box {
	struct init_box common; /* the first member: init_box_of() */
	struct list link;       /* provider.boxes */
	struct provider *p;
	char id[ENGINE_ID_MAX + 1];
	char ctl_name[48]; /* in ctl/ */
	uint64_t handle;   /* 0: not opened by the engine */
	uint8_t nonce[INIT_NONCE];
	char mark[96];
	bool asked; /* the engine's answer to OPEN is due */
	bool greeted, closing;
	bool adopted;
	enum box_close how;
	enum box_layer layer;

	box_opened_fn opened;
	void *opened_ctx;
	box_died_fn died;
	void *died_ctx;
	box_done_fn closed;
	void *closed_ctx;
	struct loop_later later;
	struct loop_timer silent; /* adopted: init should have answered long ago */
	struct garret_error open_error;
};

#define SILENT_MS 32000 /* as for a run that is overdue */
/* native_socket.c: control sockets, bound before they are wanted. */
void socket_path(const struct provider *p, const char *name, char out[80]);
int socket_take(struct provider *p, struct control_socket *ret, struct garret_error *err);
void sockets_refill(struct loop_timer *t);

#endif
