// SPDX-License-Identifier: MIT

//go:build unix

package peer

import (
	"context"
	"flag"
	"fmt"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"
)

// clientGos is client-go's leader election, with the times of kube-controller-manager and controller-runtime, and with a
// standby that asks each second: its lease is counted in whole seconds, and must be longer than RenewDeadline.
func clientGos() []Peer {
	return []Peer{
		clientGo(Defaults, 15*time.Second, 10*time.Second, 2*time.Second),
		clientGo("LeaseDuration 3 s", 3*time.Second, 2*time.Second, time.Second),
	}
}

func clientGo(setting string, lease, renew, retry time.Duration) Peer {
	return Peer{
		Name: ClientGo, Setting: setting, Store: Kubernetes, Period: stretched(retry), Expiry: lease + stretched(retry),
		Note: fmt.Sprintf("LeaseDuration %v, RenewDeadline %v, RetryPeriod %v, a LeaseLock and ReleaseOnCancel, on a server for leases "+
			"alone that refuses an update of an old resourceVersion, as the API server does: the fake clientset works in one process "+
			"only and does not. A real API server adds its own time. With ReleaseOnCancel an elector that cannot renew tries to release "+
			"before the context of its work ends.", lease, renew, retry),
		open: func(_ context.Context, j Job) (share, error) {
			quiet()
			config := &rest.Config{Host: "http://" + j.Addr, QPS: -1}
			config.ContentType = "application/json"
			lock, err := resourcelock.NewFromKubeconfig(resourcelock.LeasesResourceLock, namespace, j.Name,
				resourcelock.ResourceLockConfig{Identity: j.Node}, config, renew)
			return &clientGoShare{job: j, config: leaderelection.LeaderElectionConfig{
				Lock: lock, LeaseDuration: lease, RenewDeadline: renew, RetryPeriod: retry, ReleaseOnCancel: true, Name: j.Name,
			}}, err
		},
	}
}

// stretched is the longest time between two tries of a standby.
func stretched(retry time.Duration) time.Duration {
	return time.Duration((1 + leaderelection.JitterFactor) * float64(retry))
}

// quiet keeps klog from writing about each try.
func quiet() {
	flags := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(flags)
	_ = flags.Set("logtostderr", "false") // the flags are there
	_ = flags.Set("alsologtostderr", "false")
	_ = flags.Set("stderrthreshold", "FATAL")
	klog.SetLogger(klog.Logger{})
}

type clientGoShare struct {
	job    Job
	config leaderelection.LeaderElectionConfig
}

// contend runs an elector after the other: one that has lost its lease has done its part.
func (s *clientGoShare) contend(ctx context.Context, t *tape) error {
	for ctx.Err() == nil {
		if err := s.once(ctx, t); err != nil {
			return err
		}
	}
	return nil
}

// once is an elector. Its context ends after the work has ended, as client-go demands of who sets ReleaseOnCancel.
func (s *clientGoShare) once(ctx context.Context, t *tape) error {
	election, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	var led atomic.Bool
	worked := make(chan struct{})
	config := s.config
	config.Callbacks = leaderelection.LeaderCallbacks{
		OnNewLeader: func(id string) {
			if id != s.job.Node && id != "" {
				t.say(Waiting)
			}
		},
		OnStartedLeading: func(task context.Context) {
			defer close(worked)
			led.Store(true)
			t.say(Leading)
			select {
			case <-task.Done():
			case <-ctx.Done():
			}
			t.ended(ctx)
			cancel()
		},
		OnStoppedLeading: func() {},
	}
	elector, err := leaderelection.NewLeaderElector(config)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { // who does not lead has no work to wait for
		if !led.Load() {
			cancel()
		}
	})
	defer stop()
	elector.Run(election)
	if led.Load() {
		<-worked
	}
	return nil
}

func (s *clientGoShare) close() {}
