// SPDX-License-Identifier: MIT

//go:build unix

package peer

import (
	"errors"
	"net/url"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
)

// StartEtcd starts an etcd of one node with its data in dir, and returns where clients reach it.
func StartEtcd(dir string) (addr string, stop func(), err error) {
	config := embed.NewConfig()
	config.Dir = dir
	config.LogLevel = "fatal"
	config.UnsafeNoFsync = true
	free := url.URL{Scheme: "http", Host: "127.0.0.1:0"}
	config.ListenClientUrls, config.AdvertiseClientUrls = []url.URL{free}, []url.URL{free}
	config.ListenPeerUrls, config.AdvertisePeerUrls = []url.URL{free}, []url.URL{free}
	config.InitialCluster = config.InitialClusterFromName(config.Name)
	server, err := embed.StartEtcd(config)
	if err != nil {
		return "", nil, err
	}
	select {
	case <-server.Server.ReadyNotify():
		return server.Clients[0].Addr().String(), server.Close, nil
	case <-time.After(20 * time.Second):
		server.Close()
		return "", nil, errors.New("etcd does not start")
	}
}
