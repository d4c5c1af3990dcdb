package config

import "path/filepath"

// copySettings configure where a second copy of the store is kept.
type copySettings struct {
	CopyTo string `placeholder:"DIR" help:"Folder on another disk or mount for a copy of the embedded store, at most 5 s behind, for verifyd restore; empty: none."`
}

// config returns the folder; empty: none.
func (s copySettings) config(f *Faults, st Store) string {
	if s.CopyTo == "" {
		return ""
	}
	if st.NATSURL != "" {
		f.Add("copy-to", "set together with VERIFYD_NATS_URL: it copies only the embedded store",
			"leave it out; external servers keep VERIFYD_REPLICAS copies of everything, and verifyd "+
				"backup makes one more")
		return ""
	}
	dir, err := filepath.Abs(s.CopyTo)
	if err != nil {
		f.Add("copy-to", err.Error(), "give the full path of the folder, for example /mnt/backup/verifyd")
	}
	return dir
}
