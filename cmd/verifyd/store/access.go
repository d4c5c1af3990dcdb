package store

import (
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"

	"verifyd/cmd/verifyd/config"
	"verifyd/natsconf/embedded"
)

// AccessError reports that this user cannot use an embedded store, or must not: what one user writes there,
// another one could not use.
type AccessError struct{ Wrong, Do string }

func (e *AccessError) Error() string { return e.Wrong + "; " + e.Do }

// shownFiles bounds how many files an AccessError names.
const shownFiles = 4

// CheckAccess returns an *AccessError if the store in a data directory is another user's, or if there are
// files in it that its user cannot use; nil if there is no such folder. Root could use every store, and would
// leave files in it that only root can read.
func CheckAccess(dataDir string) error {
	owner, group, known := embedded.Owner(dataDir)
	if !known {
		return nil
	}
	dir := dataDir
	if target, err := filepath.EvalSymlinks(dir); err == nil {
		dir = target // neither the walk below nor chown -R follows a link
	}
	if absolute, err := filepath.Abs(dir); err == nil {
		dir = absolute
	}
	me := os.Geteuid()
	files := embedded.Unusable(dir, owner, config.SecretFile)
	switch {
	case owner != me && (me == 0 || len(files) > 0):
		e := &AccessError{
			Wrong: fmt.Sprintf("%q is the store of the user %s, who could not use what the user %s writes "+
				"there", dir, userName(owner), userName(me)),
			Do: fmt.Sprintf("run this as that user: sudo -u %s verifyd …", sudoName(owner)),
		}
		if me == 0 && len(files) > 0 {
			e.Wrong += ", and cannot use already: " + firstFiles(files)
			e.Do = "first run " + giving(owner, group, dir) + "; then " + e.Do
		}
		return e
	case len(files) > 0:
		return &AccessError{
			Wrong: fmt.Sprintf("the user %s cannot read and write all of the store in %q: %s",
				userName(me), dir, firstFiles(files)),
			Do: "run as root: " + giving(me, os.Getegid(), dir),
		}
	default:
		return nil
	}
}

// giving returns the command that gives a store to a user, so that it can be used whoever made its files.
func giving(uid, gid int, dir string) string {
	group := strconv.Itoa(gid)
	if g, err := user.LookupGroupId(group); err == nil {
		group = g.Name
	}
	return fmt.Sprintf("chown -R %s:%s %q && chmod -R u+rwX %q", userName(uid), group, dir, dir)
}

// userName returns the name of a user, or the number of one without a name, as chown takes it.
func userName(uid int) string {
	number := strconv.Itoa(uid)
	if u, err := user.LookupId(number); err == nil {
		return u.Username
	}
	return number
}

// sudoName is userName as sudo takes it.
func sudoName(uid int) string {
	name := userName(uid)
	if name == strconv.Itoa(uid) {
		return "'#" + name + "'"
	}
	return name
}

func firstFiles(files []string) string {
	if len(files) <= shownFiles {
		return strings.Join(files, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(files[:shownFiles], ", "), len(files)-shownFiles)
}
