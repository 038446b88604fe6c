// SPDX-License-Identifier: MIT

package leadergrpc

import (
	"errors"
	"slices"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
)

// conns are the connections of a Follower.
type conns struct {
	opts []grpc.DialOption
	most int

	mu     sync.Mutex
	list   []*conn // the one that was used last is the last
	closed bool
}

// conn is a connection that is not closed while calls use it, but by [Follower.Close].
type conn struct {
	target string
	cc     *grpc.ClientConn
	of     *conns
	users  int // guarded by of.mu
}

// get returns a connection, which the caller releases, or nil if there is none to be had.
func (p *conns) get(target string) *conn {
	p.mu.Lock()
	c, old := p.getLocked(target)
	p.mu.Unlock()
	if old != nil {
		_ = old.cc.Close()
	}
	return c
}

// getLocked also returns the connection that had to make room.
func (p *conns) getLocked(target string) (c, old *conn) {
	if p.closed {
		return nil, nil
	}
	i := slices.IndexFunc(p.list, func(c *conn) bool { return c.target == target })
	switch {
	case i >= 0 && !p.list[i].stuck():
		c = p.list[i]
		c.users++
		p.list = append(slices.Delete(p.list, i, i+1), c)
		return c, nil
	case i < 0 && len(p.list) >= p.most:
		if i = slices.IndexFunc(p.list, func(c *conn) bool { return c.users == 0 }); i < 0 {
			return nil, nil
		}
	}
	cc, err := grpc.NewClient(target, p.opts...) // only looks at its options: it connects when it is called
	if err != nil {
		return nil, nil // the refusal says more to the caller
	}
	if i >= 0 {
		old = p.list[i]
		p.list = slices.Delete(p.list, i, i+1)
	}
	c = &conn{target: target, cc: cc, of: p, users: 1}
	p.list = append(p.list, c)
	return c, old
}

// stuck reports whether c waits for up to minutes, as it could not connect, before it looks its address up and dials again. It was
// named just now, so it may have a new address, or answer again. While others use c, it only dials.
func (c *conn) stuck() bool {
	if c.cc.GetState() != connectivity.TransientFailure {
		return false
	}
	c.cc.ResetConnectBackoff()
	return c.users == 0
}

func (c *conn) release() {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	c.users--
}

func (p *conns) close() error {
	p.mu.Lock()
	list := p.list
	p.list, p.closed = nil, true
	p.mu.Unlock()
	var errs []error
	for _, c := range list {
		errs = append(errs, c.cc.Close())
	}
	return errors.Join(errs...)
}
