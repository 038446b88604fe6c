// SPDX-License-Identifier: MIT

//go:build unix

package peer

import (
	"context"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"
)

// etcds is the election of etcd's concurrency package, as it comes, and with the shortest lease that a server grants which has
// its own defaults.
func etcds() []Peer {
	return []Peer{etcd(Defaults, 60), etcd("TTL 2 s", 2)}
}

func etcd(setting string, ttl int) Peer {
	lease := time.Duration(ttl) * time.Second
	return Peer{
		Name: EtcdName, Setting: setting, Store: Etcd, Period: lease / 3, Expiry: lease + 2*time.Second, Prompt: true,
		Note: fmt.Sprintf("A session with a TTL of %v, on a server of one node in the process of the benchmark, without fsync, as "+
			"PostgreSQL is here, too: a cluster adds its own time.", lease),
		open: func(_ context.Context, j Job) (share, error) {
			client, err := clientv3.New(clientv3.Config{
				Endpoints: []string{j.Addr}, DialTimeout: 5 * time.Second, Logger: zap.NewNop(),
			})
			return &etcdShare{job: j, ttl: ttl, client: client}, err
		},
	}
}

// etcdShare has a session from its first leadership on, until that is lost.
type etcdShare struct {
	job     Job
	ttl     int
	client  *clientv3.Client
	session *concurrency.Session
}

func (s *etcdShare) contend(ctx context.Context, t *tape) error {
	for ctx.Err() == nil {
		if err := s.once(ctx, t); err != nil && ctx.Err() == nil {
			pause(ctx, 100*time.Millisecond)
		}
	}
	return nil
}

// once is a leadership, and the wait for it.
func (s *etcdShare) once(ctx context.Context, t *tape) error {
	if s.session == nil {
		var err error
		if s.session, err = concurrency.NewSession(s.client, concurrency.WithTTL(s.ttl)); err != nil {
			return err
		}
	}
	asking, cancel := context.WithCancel(ctx)
	defer cancel()
	go s.watch(asking, t) // until cancel
	election := concurrency.NewElection(s.session, s.job.Name)
	if err := election.Campaign(asking, s.job.Node); err != nil {
		if s.lost() {
			s.session = nil
		}
		return err
	}
	cancel()
	t.say(Leading)
	select {
	case <-s.session.Done():
		t.ended(ctx)
		s.session = nil
		return nil
	case <-ctx.Done():
		t.ended(ctx)
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	return election.Resign(last)
}

func (s *etcdShare) lost() bool {
	select {
	case <-s.session.Done():
		return true
	default:
		return false
	}
}

// watch says when there is somebody in front of this process: Campaign does not tell that it waits.
func (s *etcdShare) watch(ctx context.Context, t *tape) {
	for ctx.Err() == nil {
		all, err := s.client.Get(ctx, s.job.Name+"/", clientv3.WithPrefix(), clientv3.WithCountOnly())
		if err == nil && all.Count > 1 {
			t.say(Waiting)
			return
		}
		pause(ctx, 20*time.Millisecond)
	}
}

func (s *etcdShare) close() { _ = s.client.Close() } // the process ends anyway
