//go:build !linux

package soak

import "errors"

type smallDisk struct{}

func newSmallDisk(string) (*smallDisk, error) { return nil, errors.ErrUnsupported }

func (d *smallDisk) fill() error  { return errors.ErrUnsupported }
func (d *smallDisk) free() error  { return errors.ErrUnsupported }
func (d *smallDisk) close() error { return nil }
