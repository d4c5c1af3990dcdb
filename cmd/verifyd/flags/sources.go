// Package flags reads the values of flags from the command line, variables, and the file of --config. It also
// warns of variables that nothing reads, and of secrets on the command line, where everybody can read them.
package flags

import (
	"fmt"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// Where the values of flags come from. A flag that belongs to one of settingGroups is a setting: it has a
// variable, and a key in the file of --config. Any other flag tells a command what to do, and only the
// command line may do that: a variable that another tool sets must not make a key with a limit, end one, or
// send something. The group is inherited from the struct that is embedded, so a flag that is added to a
// command is no setting unless it belongs to the service or its store.

// The keys of settingGroups, as the tag group names them.
const (
	groupProcess = "process" // where a process listens
	groupStore   = "store"   // what opens the same store; every command on it has these
)

// SettingGroups are the groups of settings. Help pages show them after the command's own flags.
var SettingGroups = []kong.Group{
	{Key: groupProcess, Title: "Settings of the process:"},
	{Key: "networks", Title: "Settings of identity networks and logins:"},
	{Key: "callbacks", Title: "Settings of callbacks:"},
	{Key: "limits", Title: "Settings of limits:"},
	{Key: "log", Title: "Settings of the log:"},
	{Key: "traces", Title: "Settings of traces:"},
	{Key: "alarms", Title: "Settings of operator events:"},
	{Key: "copy", Title: "Settings of the copy of the store:"},
	{Key: "server", Title: "Settings of a service on another machine, instead of the store:"},
	{Key: groupStore, Title: "Settings of the store, the same as the service's:"},
}

// IsSetting reports whether a flag is one of the settings.
func IsSetting(flag *kong.Flag) bool {
	return flag.Group != nil &&
		slices.ContainsFunc(SettingGroups, func(g kong.Group) bool { return g.Key == flag.Group.Key })
}

// variablePrefix begins the name of every variable.
const variablePrefix = "VERIFYD_"

// VariableOf names the variable of a setting.
func VariableOf(flag string) string {
	return variablePrefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// SettingVariables sets the variable of each setting, unless its tag names others, or - for none; nothing
// else gets one.
func SettingVariables() kong.Option {
	return kong.PostBuild(func(k *kong.Kong) error {
		for flag := range AllFlags(k.Model) {
			switch {
			case slices.Equal(flag.Envs, []string{"-"}):
				flag.Envs = nil
			case IsSetting(flag) && len(flag.Envs) == 0:
				flag.Envs = []string{VariableOf(flag.Name)}
			}
			flag.Tag.Envs = flag.Envs // the former are read, the latter are shown on the help page
		}
		return nil
	})
}

// AllFlags returns every flag of every command, with the command; the program's own come with its root.
func AllFlags(app *kong.Application) func(yield func(*kong.Flag, *kong.Node) bool) {
	return func(yield func(*kong.Flag, *kong.Node) bool) {
		flagsUnder(app.Node, yield)
	}
}

func flagsUnder(node *kong.Node, yield func(*kong.Flag, *kong.Node) bool) bool {
	for _, flag := range node.Flags {
		if !yield(flag, node) {
			return false
		}
	}
	return !slices.ContainsFunc(node.Children, func(child *kong.Node) bool {
		return !flagsUnder(child, yield)
	})
}

// TakesSettings reports whether a command has settings.
func TakesSettings(command *kong.Node) bool {
	return command != nil && slices.ContainsFunc(command.Flags, IsSetting)
}

// ConfigFile is the file of --config. A command without settings does not read the one that VERIFYD_CONFIG
// names, and accepts none.
type ConfigFile string

// BeforeResolve makes the file provide settings. The library calls it for a flag of the command line, which
// is in the path, as for a variable.
func (ConfigFile) BeforeResolve(k *kong.Kong, ctx *kong.Context, at *kong.Path) error {
	command := ctx.Selected()
	if !TakesSettings(command) {
		if slices.Contains(ctx.Path, at) && command != nil {
			return fmt.Errorf("--config: verifyd %s has no settings that a file could give; leave it out",
				command.Path())
		}
		return nil
	}
	file, _ := ctx.FlagValue(at.Flag).(ConfigFile)
	if file == "" {
		return nil
	}
	values, err := k.LoadConfig(string(file))
	if err != nil {
		return fmt.Errorf("--config: %w", err)
	}
	ctx.AddResolver(values)
	return nil
}
