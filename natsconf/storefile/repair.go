package storefile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// indexFile is the server's own summary of a stream's blocks. Without it, the server reads the blocks.
const indexFile = "index.db"

// Repair rewrites the damaged blocks of a stream with only their intact records, and removes the server's
// index of them. The damaged files are kept in another folder. A repeat is harmless.
func Repair(folder, name, keep string) error {
	numbers, err := Blocks(folder)
	if err != nil {
		return err
	}
	for _, n := range numbers {
		if err := repairBlock(folder, name, n, keep); err != nil {
			return fmt.Errorf("repair block %d of %s: %w", n, name, err)
		}
	}
	index := filepath.Join(folder, BlockFolder, indexFile)
	if err := os.Remove(index); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("take the index of %s away: %w", name, err)
	}
	return nil
}

func repairBlock(folder, name string, number uint32, keep string) error {
	path := BlockPath(folder, number)
	buf, err := os.ReadFile(path) //nolint:gosec // the operator's own store
	if err != nil {
		return err
	}
	var intact []byte
	damaged := false
	newBlock(name, number, buf).walk(func(_ record, raw []byte) { intact = append(intact, raw...) },
		func(hole) { damaged = true })
	if !damaged {
		return nil
	}
	if err := os.MkdirAll(keep, 0o700); err != nil {
		return err
	}
	if err := Replace(filepath.Join(keep, filepath.Base(path)), buf); err != nil {
		return err
	}
	return Replace(path, intact)
}

// Replace writes a file as a whole, and returns when it is on the disk: after a crash it has the old content
// or the new one.
func Replace(path string, data []byte) error {
	next := path + ".new"
	f, err := os.OpenFile(next, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, //nolint:gosec // the operator's own store
		0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(next, path)
	}
	if err != nil { // a full disk needs the room
		_ = os.Remove(next)
		return err
	}
	return SyncFolder(filepath.Dir(path))
}

// Copy copies a file as a whole to another path, and makes the folder there.
func Copy(path, to string) error {
	b, err := os.ReadFile(path) //nolint:gosec // the operator's own store
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		return err
	}
	return Replace(to, b)
}

// SyncFolder syncs a folder, so that the names of its files are durable.
func SyncFolder(path string) error {
	d, err := os.Open(path) //nolint:gosec // the operator's own store
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// Sync syncs a stream's block files as they are.
func Sync(folder string) error {
	numbers, err := Blocks(folder)
	if err != nil || len(numbers) == 0 {
		return err
	}
	for _, n := range numbers {
		if err := SyncFolder(BlockPath(folder, n)); err != nil { // the same for a file
			return fmt.Errorf("sync block %d: %w", n, err)
		}
	}
	return SyncFolder(filepath.Join(folder, BlockFolder))
}

// settledBlocks is how many blocks at the end of a stream may hold data that was written but never synced: a
// write, or a batch of them, begins in one and ends at most in the next.
const settledBlocks = 2

// Settle reads the end of a stream's files, writes the same bytes again, and syncs them. After a sync has
// failed, the kernel still returns data that never reached the disk, and considers it written: another sync
// would do nothing. What is read after Settle is on the disk.
func Settle(folder string) error {
	numbers, err := Blocks(folder)
	if err != nil {
		return err
	}
	for _, n := range numbers[max(0, len(numbers)-settledBlocks):] {
		if err := rewrite(BlockPath(folder, n)); err != nil {
			return fmt.Errorf("settle block %d: %w", n, err)
		}
	}
	return nil
}

func rewrite(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0) //nolint:gosec // the operator's own store
	if err != nil {
		return err
	}
	buf, err := os.ReadFile(path) //nolint:gosec // the same
	if err == nil {
		_, err = f.WriteAt(buf, 0)
	}
	return errors.Join(err, f.Sync(), f.Close())
}
