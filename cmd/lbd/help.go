package main

import "github.com/alecthomas/kong"

// printHelp prints the help of a command. Without a command it prints the list of
// commands and, below it, the flags of serve, which is the default command.
func printHelp(options kong.HelpOptions, ctx *kong.Context) error {
	if ctx.Selected() != nil {
		return kong.DefaultHelpPrinter(options, ctx)
	}
	options.FlagsLast = true
	own := &kong.Group{Key: "lbd", Title: "Flags:"}
	inherited := &kong.Group{Key: "serve", Title: "Flags of serve:"}
	for _, flag := range ctx.Model.Flags {
		flag.Group = own
	}
	for _, command := range ctx.Model.Children {
		if command.Name != "serve" {
			continue
		}
		for _, flag := range command.Flags {
			flag.Group = inherited
			ctx.Model.Flags = append(ctx.Model.Flags, flag)
		}
	}
	return kong.DefaultHelpPrinter(options, ctx)
}
