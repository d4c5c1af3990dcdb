package storefile

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// The folder of a stream holds its settings in meta.inf and their checksum in meta.sum, and so does the
// folder of each of its consumers. The server leaves out a stream whose settings do not match. It does not
// compare those of a consumer: a flipped byte stops the stream, or makes another consumer of it.
const (
	settingsFile    = "meta.inf"
	settingsSum     = "meta.sum"
	consumersFolder = "obs"
)

// The server writes these files in place, and one after the other: what does not match counts if it lasts.
const settingsLooks, settingsPause = 5, 20 * time.Millisecond

// everIntact reports whether one of some looks at a file finds it intact.
func everIntact(look func() (bool, error)) (intact bool, err error) {
	for n := range settingsLooks {
		if n > 0 {
			time.Sleep(settingsPause)
		}
		if intact, err = look(); intact || err != nil {
			break
		}
	}
	return intact, err
}

// Consumers returns the names of a stream's consumers that have a folder.
func Consumers(folder string) (names []string, err error) {
	entries, err := os.ReadDir(filepath.Join(folder, consumersFolder))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list the consumers: %w", err)
	}
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// SettingsIntact reports whether the settings in a stream's folder match their checksum: those of a consumer,
// or, without a name, those of the stream. Settings that are not there do not count.
func SettingsIntact(folder, stream, consumer string) (bool, error) {
	key := stream
	if consumer != "" {
		key += "/" + consumer
	}
	return everIntact(func() (bool, error) { return settingsMatch(partFolder(folder, consumer), key) })
}

func settingsMatch(dir, key string) (bool, error) {
	settings, err := os.ReadFile(filepath.Join(dir, settingsFile)) //nolint:gosec // the operator's own store
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	sum, err := os.ReadFile(filepath.Join(dir, settingsSum)) //nolint:gosec // the same
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	h := newHash(key)
	_, _ = h.Write(settings)
	return hex.EncodeToString(h.Sum(nil)) == string(sum), nil
}

func partFolder(folder, consumer string) string {
	if consumer == "" {
		return folder
	}
	return filepath.Join(folder, consumersFolder, consumer)
}

// SetSettingsAside moves the settings of a stream, or of one of its consumers, to another folder. Whoever
// makes the stream or the consumer again has its messages or its position. A repeat is harmless.
func SetSettingsAside(folder, consumer, keep string) error {
	return setAside(partFolder(folder, consumer), partFolder(keep, consumer), settingsFile, settingsSum)
}

// SetPositionAside moves the file with a consumer's position to another folder.
func SetPositionAside(folder, consumer, keep string) error {
	return setAside(partFolder(folder, consumer), partFolder(keep, consumer), positionFile)
}

func setAside(dir, keep string, names ...string) error {
	for _, name := range names {
		path := filepath.Join(dir, name)
		err := Copy(path, filepath.Join(keep, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			err = os.Remove(path)
		}
		if err != nil {
			return err
		}
	}
	return SyncFolder(dir)
}
