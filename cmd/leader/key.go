// SPDX-License-Identifier: MIT

package main

import (
	"encoding/json"
	"fmt"

	"github.com/oxygenhub/leader"
)

// keyOf is a lock as others see it.
type keyOf struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Key       int64  `json:"key"`
	Hex       string `json:"hex"`
	ClassID   uint32 `json:"classid"`
	ObjID     uint32 `json:"objid"`
	Channel   string `json:"channel"`
}

func newKeyOf(namespace, name string) keyOf {
	key := leader.Key(namespace, name)
	return keyOf{namespace, name, key, fmt.Sprintf("%016x", uint64(key)), uint32(uint64(key) >> 32), uint32(uint64(key)), channel(namespace)}
}

// channel is where a namespace is notified.
func channel(namespace string) string {
	return fmt.Sprintf("leader_%016x", uint64(leader.Key(namespace, "")))
}

func (a *app) key(args []string) (int, error) {
	fs := a.flags("key", keyHelp)
	asJSON := fs.Bool("json", false, "")
	if err := parse(fs, args); err != nil {
		return 0, err
	}
	if fs.NArg() != 2 || fs.Arg(1) == "" {
		return 0, usagef("key: give a namespace and a name")
	}
	k := newKeyOf(fs.Arg(0), fs.Arg(1))
	if *asJSON {
		return 0, a.json(k)
	}
	a.print("key      %d\nhex      %s\nclassid  %d\nobjid    %d\nchannel  %s\n", k.Key, k.Hex, k.ClassID, k.ObjID, k.Channel)
	return 0, nil
}

// json prints v in one line.
func (a *app) json(v any) error { return json.NewEncoder(a.stdout).Encode(v) }
