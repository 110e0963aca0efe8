<?php

declare(strict_types=1);

namespace Lbd;

/** How calls to lbd end. */
enum State: string
{
    /** A call to lbd has failed. In the mode batch, requests go on with the last batch. */
    case Unreachable = 'unreachable';

    /** lbd is unreachable, and the last batch is older than staleFor: requests fail, or go to the fallback. */
    case Stale = 'stale';

    /** lbd has answered again. */
    case Recovered = 'recovered';
}
