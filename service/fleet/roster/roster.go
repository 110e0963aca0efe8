package roster

import (
	"time"

	"github.com/lbd-dev/lbd/service/fleet/share"
)

// Roster is what one replica knows of all at a time. It is immutable.
type Roster struct {
	// Self is the ID of this replica.
	Self string
	// Joined: this replica has a session. Without, the rest is as it was when it had one.
	Joined bool
	// Members are in the order of their IDs.
	Members []Member
	// Limits are in the order of their names.
	Limits []Limit
	// Age is that of the summaries, since they were read; 0 if they never were.
	Age time.Duration
	// Err is why they could not be read since; nil if they could.
	Err error
}

// Member is a replica, or what is left of one.
type Member struct {
	Replica

	// Gone: its session has ended. It has only shares then, until its leases have ended.
	Gone bool
	// Summary is nil if there is none, or it cannot be read.
	Summary *Summary
}

// Owner is the replica that has granted a lease.
type Owner struct {
	Replica

	// Live: it has a session.
	Live bool
	// Left is how long its leases may last, if it is known and has no session any more.
	Left time.Duration
}

// Limit is a limit of the fleet.
type Limit struct {
	Cluster        string
	EDSServiceName string
	// Shares are in the order of the IDs of replicas.
	Shares []Share
}

// Share is the part of a limit that a replica has.
type Share struct {
	share.Entry

	// Gone: the session of the replica has ended. Its share is kept until its leases have ended, for
	// Left at most.
	Gone bool
	Left time.Duration
}
