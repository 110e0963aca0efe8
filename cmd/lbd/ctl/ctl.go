// Package ctl has the commands of lbd ctl, a client of lbd's HTTP API. It knows the API only by its
// contract, so that it also works with daemons of other versions.
package ctl

// exitHelp is the part of the help that describes the exit codes.
const exitHelp = `Exit codes: 0 success; 1 diff found a difference, a pick got no endpoint, a change was not confirmed, ` +
	`a drain is not complete after --wait, or undrain found no overlay; 2 invalid command line, context or file, or the output cannot be written; 3 no response from the daemon; 4 refused by the daemon; ` +
	`5 failure of the daemon, or not an lbd; 130 interrupted.`

// Command is lbd ctl.
type Command struct {
	Options

	Get       getCommand       `cmd:"" help:"Show clusters, targets or endpoints, with their state."`
	Pick      pickCommand      `cmd:"" help:"Pick endpoints."`
	Explain   explainCommand   `cmd:"" help:"Pick an endpoint, and show each step of the decision."`
	Diff      diffCommand      `cmd:"" help:"Show what a push would change. Exits with 1 if there is a difference."`
	Push      pushCommand      `cmd:"" help:"Push the endpoints or the config of a cluster, after a preview and a confirmation."`
	Delete    deleteCommand    `cmd:"" help:"Delete the pushed endpoints or config of a cluster, after a preview and a confirmation."`
	Drain     drainCommand     `cmd:"" help:"Drain an endpoint or a locality: no new picks, requests in flight end in their time. Asks for confirmation after a preview."`
	Undrain   undrainCommand   `cmd:"" help:"Delete the overlays that drain or disable an endpoint or a locality, after a confirmation."`
	Weight    weightCommand    `cmd:"" help:"Multiply the weight of an endpoint or a locality, after a preview and a confirmation."`
	Overlays  overlaysCommand  `cmd:"" help:"List, put and delete overlays: changes by operators on top of the sources of clusters."`
	Reconnect reconnectCommand `cmd:"" help:"Connect now to the endpoints of a cluster that wait for their next attempt."`
	History   historyCommand   `cmd:"" help:"List the changes of resources, newest first."`
	Restore   restoreCommand   `cmd:"" help:"Push again what was pushed at an index of the history, after a preview and a confirmation."`
	Leases    leasesCommand    `cmd:"" help:"List the held leases."`
	Fleet     fleetCommand     `cmd:"" help:"Show the daemons that share a store."`
	Bench     benchCommand     `cmd:"" help:"Pick in a loop, and print the rate and the latency. The picks are counted."`
	Top       topCommand       `cmd:"" help:"Show all clusters live, worst first, until q is pressed."`
	Watch     watchCommand     `cmd:"" help:"Print events as they happen, until interrupted."`
	Context   contextCommand   `cmd:"" name:"context" help:"Manage contexts: daemons, and how to reach them."`
}

// Help returns the part of the help of lbd ctl that is below its description. kong calls it.
func (*Command) Help() string { return exitHelp }

// ProvideOptions returns what the commands get. kong calls it.
func (c *Command) ProvideOptions() *Options { return &c.Options }
