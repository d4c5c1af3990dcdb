package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"verifyd/cmd/verifyd/command"
	"verifyd/cmd/verifyd/config"
	"verifyd/cmd/verifyd/flags"
	"verifyd/cmd/verifyd/manual"
	"verifyd/cmd/verifyd/version"
)

// examples are command lines that help pages show, by the command. Each command has one.
var examples = map[string]string{
	"": "verifyd demo",
	"serve": "VERIFYD_BASE_URL=https://verify.example.com " +
		"VERIFYD_NETWORKS_FILE=networks.yaml verifyd serve",
	"demo": "verifyd demo --auto",
	"demo-beside": "verifyd demo-beside --service https://verify.test --network " +
		"https://network.test --receiver https://bot.test",
	"key":                       `verifyd key create --account "Harbor Guild"`,
	"key create":                `verifyd key create --account "Harbor Guild" --name production --expires 2027-01-31`,
	"key roll":                  "verifyd key roll key_5ah3gk7zq2mxw4td --grace 24h",
	"key list":                  "verifyd key list",
	"key revoke":                "verifyd key revoke key_5ah3gk7zq2mxw4td",
	"account":                   `verifyd account create "Harbor Guild"`,
	"account create":            `verifyd account create "Harbor Guild"`,
	"account list":              "verifyd account list",
	"account show":              `verifyd account show "Harbor Guild"`,
	"account secret":            `verifyd account secret "Harbor Guild"`,
	"account rotate-secret":     `verifyd account rotate-secret "Harbor Guild" --overlap 24h`,
	"account end-rotation":      `verifyd account end-rotation "Harbor Guild"`,
	"account login-link":        `verifyd account login-link "Harbor Guild" --base-url https://verify.example.com`,
	"account revoke-login-link": `verifyd account revoke-login-link "Harbor Guild" link_5ah3gk7zq2mxw4td`,
	"account return-url":        `verifyd account return-url "Harbor Guild" https://harbor.example/verified`,
	"account binding":           `verifyd account binding "Harbor Guild" code`,
	"account notices":           `verifyd account notices "Harbor Guild" https://bot.harbor.example/notices`,
	"account colour":            `verifyd account colour "Harbor Guild" "#1f5fd0"`,
	"account quota":             `verifyd account quota "Harbor Guild" 5000`,
	"account rename":            `verifyd account rename "Harbor Guild" "Harbour Guild"`,
	"account verified":          `verifyd account verified "Harbor Guild"`,
	"account disable":           `verifyd account disable "Harbor Guild" --reason "Its bill is open."`,
	"account enable":            `verifyd account enable "Harbor Guild"`,
	"account delete":            `verifyd account delete "Harbor Guild" --dry-run`,
	"account restore":           `verifyd account restore "Harbor Guild"`,
	"account move-member":       `verifyd account move-member --from "Harbor Guild" --to "Pier Guild" discord:80351110224678912`,
	"account audit":             `verifyd account audit "Harbor Guild" --limit 20`,
	"operator":                  "verifyd operator grant example:12345",
	"operator grant":            "verifyd operator grant example:12345",
	"operator revoke":           "verifyd operator revoke example:12345",
	"operator list":             "verifyd operator list",
	"operator login-link":       "verifyd operator login-link --base-url https://verify.example.com",
	"operator audit":            "verifyd operator audit --limit 20",
	"operator token":            "verifyd operator token list",
	"operator token create":     "verifyd operator token create --name deploy --scope keys:write",
	"operator token list":       "verifyd operator token list",
	"operator token revoke":     "verifyd operator token revoke optok_5ah3gk7zq2mxw4td",
	"member":                    `verifyd member list --account "Harbor Guild"`,
	"member list":               `verifyd member list --account "Harbor Guild"`,
	"member invite":             `verifyd member invite --account "Harbor Guild" --role viewer --base-url https://verify.example.com`,
	"member withdraw":           `verifyd member withdraw --account "Harbor Guild" inv_5ah3gk7zq2mxw4td`,
	"member role":               `verifyd member role --account "Harbor Guild" example:12345 --to owner`,
	"member remove":             `verifyd member remove --account "Harbor Guild" example:12345`,
	"hosts":                     "verifyd hosts list",
	"hosts list":                "verifyd hosts list",
	"hosts pause":               `verifyd hosts pause bot.example.com --for 4h --reason "moving house"`,
	"hosts resume":              "verifyd hosts resume bot.example.com",
	"deliveries":                "verifyd deliveries list --state unknown",
	"deliveries list":           "verifyd deliveries list --state unknown",
	"deliveries show":           "verifyd deliveries show k3v7q2m5zt4yd6n2xw7p2c4hf2jb5ral",
	"deliveries resend":         "verifyd deliveries resend k3v7q2m5zt4yd6n2xw7p2c4hf2jb5ral",
	"deliveries redrive": "verifyd deliveries redrive --state undeliverable --host " +
		"bot.example.com --dry-run",
	"sessions": "verifyd sessions export --account acc_k3v7q2m5zt4yd6n2xw7p",
	"sessions export": "verifyd sessions export --account acc_k3v7q2m5zt4yd6n2xw7p --state failed " +
		"--from 2026-11-21",
	"explain": "verifyd explain k3v7q2m5zt4yd6n2xw7p2c4hf2jb5ral",
	"try":     "VERIFYD_TRY_SECRET=whsec_… verifyd try https://bot.example.com/verified",
	"listen": "VERIFYD_API_KEY=vfytest_… verifyd listen --base-url " +
		"https://verify.example.com --forward http://localhost:3000/hook",
	"status": "verifyd status --watch",
	"check":  "verifyd check --probe https://bot.example.com/verified",
	"move": "verifyd move --to nats://n1:4222,nats://n2:4222,nats://n3:4222 " +
		"--to-creds operator/nats.nk",
	"backup":  "verifyd backup /backups/verifyd-2026-11-21",
	"restore": "verifyd restore /backups/verifyd-2026-11-21 --data-dir new-store",
	"recover": "verifyd recover --data-dir /var/lib/verifyd",
	"erase":   `verifyd erase --platform-user-id 118230984 --platform discord --account "Harbor Guild" --dry-run`,
	"secret":  "verifyd secret rekey",
	"secret rekey": "verifyd secret rekey --nats-url nats://n1:4222 --nats-creds operator/nats.nk " +
		"--secret-key-file operator/secret.key --new-key-file operator/secret.key.new",
	"log-level": "verifyd log-level debug --for 10m",
	"prepare":   "verifyd prepare /etc/verifyd --nats-servers n1,n2,n3 --store-limit 60GiB",
	"apply": "verifyd apply --nats-url nats://n1:4222 --nats-creds " +
		"operator/nats.nk --secret-key-file operator/secret.key",
	"healthcheck": "verifyd healthcheck",
	"version":     "verifyd version",
	"completion":  "verifyd completion bash",
	"help":        "verifyd help key create",
}

// helpCmd is for users who type verifyd help key, as with other programs.
type helpCmd struct {
	As      string   `default:"page" enum:"page,man,bash,zsh,fish" help:"Format: page; man, the whole manual as a man page; or the completions of a shell: bash, zsh or fish."`
	Command []string `arg:"" optional:"" help:"The command to explain; without one, all are listed."`
}

// completionCmd is help --as for a shell, under the name that other programs have for it.
type completionCmd struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"The shell: bash, zsh or fish."`
}

// Run prints the completions.
func (s completionCmd) Run(k *kong.Kong, c command.Console) error {
	return helpCmd{As: s.Shell}.Run(k, c)
}

// Run shows the page that --help shows, or the man page and completions that packages install.
func (h helpCmd) Run(k *kong.Kong, c command.Console) error {
	if h.As == "page" {
		return showHelp(k, h.Command)
	}
	of := manual.Program{App: k.Model, Version: version.Text(), Examples: examples}
	return of.Write(c.Out, h.As)
}

// showHelp exits through the parser.
func showHelp(k *kong.Kong, of []string) error {
	if _, err := k.Parse(append(slices.Clone(of), "--help")); err != nil {
		return config.Usage(fmt.Errorf("%w; verifyd help lists the commands", err))
	}
	return nil
}

// lacksCommand reports whether a command line ends before it names a command: verifyd alone, or verifyd key.
func lacksCommand(k *kong.Kong, args []string) bool {
	traced, err := kong.Trace(k, args)
	if err != nil || traced.Error != nil {
		return false
	}
	at := traced.Selected()
	return at == nil || len(at.Children) > 0
}

// everyCommand is the group of the program's own flags; it is shown between those of a command and the
// settings.
var everyCommand = kong.Group{Key: "every command", Title: "Flags of every command:"}

// helpPage writes the purpose of a command, its usage and an example, its arguments and flags, and the
// settings last, those of the store after all others.
func helpPage(o kong.HelpOptions, ctx *kong.Context) error {
	at := ctx.Selected()
	if at == nil {
		at = ctx.Model.Node
	}
	for _, flag := range ctx.Model.Flags {
		flag.Group = &everyCommand
		// only commands with settings have a file of them
		flag.Hidden = flag.Name == "config" && !flags.TakesSettings(at)
	}
	if _, err := fmt.Fprintln(ctx.Stdout, at.Help); err != nil {
		return err
	}
	usage := strings.Join(strings.Fields("verifyd "+at.Summary()), " ")
	at.Help, at.Detail = "",
		fmt.Sprintf("Usage:\n\n    %s\n\nFor example:\n\n    %s", usage, examples[at.Path()])
	return kong.DefaultHelpPrinter(o, ctx)
}
