// SPDX-License-Identifier: MIT

//go:build unix && !linux

package main

import "syscall"

func adopt() {}

func dieTogether(*syscall.SysProcAttr) {}
