// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"io"
	"net"
	"sync"
)

// proxy lies between the locks of one worker and PostgreSQL, and can cut them off.
type proxy struct {
	listener net.Listener
	dial     func(context.Context) (net.Conn, error)

	mu      sync.Mutex
	healed  chan struct{} // nil if there is no partition, or else closed at its end
	servers []net.Conn
}

func newProxy(dial func(context.Context) (net.Conn, error)) (*proxy, error) {
	listener, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &proxy{listener: listener, dial: dial}
	go func() { // ends with the program
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			go p.carry(client) // ends with either side
		}
	}()
	return p, nil
}

func (p *proxy) addr() string { return p.listener.Addr().String() }

func (p *proxy) carry(client net.Conn) {
	defer func() { _ = client.Close() }()
	server, err := p.dial(context.Background())
	if err != nil {
		return
	}
	defer func() { _ = server.Close() }()
	if healed := p.add(server); healed == nil {
		go func() { // ends with the client
			_, _ = io.Copy(server, client)
			_ = server.Close()
		}()
		_, _ = io.Copy(client, server)
	}
	p.mu.Lock()
	healed := p.healed
	p.mu.Unlock()
	if healed != nil { // the client does not hear of the end
		<-healed
	}
}

// add returns the partition, if there is one.
func (p *proxy) add(server net.Conn) <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.healed == nil {
		p.servers = append(p.servers, server)
	}
	return p.healed
}

// cut ends what the server has of the connections. The client hears nothing more, also on new ones.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.healed = make(chan struct{})
	for _, server := range p.servers {
		_ = server.Close() // it may have ended
	}
	p.servers = nil
}

// mend ends the partition: what was cut is closed now.
func (p *proxy) mend() {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.healed)
	p.healed = nil
}
