package devstack

import (
	"context"
	"fmt"
	"strconv"
	"strings"
)

// AddReplica starts a replica with the same options and waits until both sides call it in sync: from then on it counts
// for MinReplicasToWrite.
func (r *Redis) AddReplica(ctx context.Context) (*Redis, error) {
	replica, err := r.stack.startRedis(ctx, r.options, r)
	if err != nil {
		return nil, err
	}
	if err := replica.awaitSync(ctx, r); err != nil {
		return nil, err
	}
	return replica, nil
}

// Follow makes the server a replica of master and waits until it is in sync. Its own data are lost, as they are when a
// failover turns an old master into a replica.
func (r *Redis) Follow(ctx context.Context, master *Redis) error {
	if _, err := r.Do(ctx, "REPLICAOF", "127.0.0.1", strconv.Itoa(master.port)); err != nil {
		return err
	}
	return r.awaitSync(ctx, master)
}

// Promote makes a replica a master, as a failover does: it keeps what it had received and takes a new replication id.
func (r *Redis) Promote(ctx context.Context) error {
	_, err := r.Do(ctx, "REPLICAOF", "NO", "ONE")
	return err
}

func (r *Redis) awaitSync(ctx context.Context, master *Redis) error {
	return r.running().await(ctx, fmt.Sprintf("replica %s to sync", r.Addr()), func() bool {
		own, err := r.info(ctx)
		if err != nil || own["master_link_status"] != "up" {
			return false
		}
		seen, err := master.info(ctx)
		if err != nil {
			return false
		}
		for name, value := range seen {
			// slave0:ip=127.0.0.1,port=15001,state=online,offset=14,lag=0
			if strings.HasPrefix(name, "slave") && strings.Contains(value, ",port="+strconv.Itoa(r.port)+",state=online") {
				return true
			}
		}
		return false
	})
}
