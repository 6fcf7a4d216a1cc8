/** Whose a folder of the spool is: a process holds its own by listening on a socket in it.
 *
 * Node has no file locks. A socket is the kernel's, as a lock is: it refuses connections as soon as
 * its process has ended, also by a kill, and takes them while that is busy. */

import { closeSync, lstatSync, openSync } from "node:fs";
import { connect, createServer, type Server } from "node:net";
import { join } from "node:path";

const NAME = "lock";
/** The kernel takes no longer address of a socket; macOS has 104. */
const ADDRESS_BYTES_MAX = 103;

export interface FolderLock {
  release(): void;
}

/** Undefined where sockets cannot be made in the folder. */
export function hold(folder: string): FolderLock | undefined {
  const address = addressIn(folder);
  if (address === undefined) return undefined;
  const server: Server = createServer((socket) => socket.destroy());
  server.on("error", () => undefined);
  // Exclusive: in a worker of node:cluster its primary would listen instead, and live on.
  server.listen({ path: address.path, exclusive: true });
  if (!server.listening) {
    address.close();
    return undefined;
  }
  server.unref();
  return { release: () => server.close(address.close) };
}

/** Whether the process that had the folder is gone. False of folders that are no spools of ours,
 * such as those of the recorder for Python, whose lock is a file. */
export async function isAbandoned(folder: string): Promise<boolean> {
  try {
    const entry = lstatSync(join(folder, NAME), { throwIfNoEntry: false });
    if (entry === undefined) return lstatSync(folder).isDirectory();
    if (!entry.isSocket()) return false;
  } catch {
    return false;
  }
  const address = addressIn(folder);
  if (address === undefined) return false;
  try {
    return await refuses(address.path);
  } finally {
    address.close();
  }
}

function refuses(path: string): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect({ path });
    socket.once("connect", () => {
      socket.destroy();
      resolve(false);
    });
    socket.once("error", (error: NodeJS.ErrnoException) => resolve(error.code === "ECONNREFUSED"));
  });
}

interface Address {
  readonly path: string;
  readonly close: () => void;
}

/** On Linux a long path is reached through the open folder. */
function addressIn(folder: string): Address | undefined {
  const path = join(folder, NAME);
  if (Buffer.byteLength(path) <= ADDRESS_BYTES_MAX) return { path, close: () => undefined };
  if (process.platform !== "linux") return undefined;
  try {
    const opened = openSync(folder, "r");
    return { path: `/proc/self/fd/${opened}/${NAME}`, close: () => closeSync(opened) };
  } catch {
    return undefined;
  }
}
