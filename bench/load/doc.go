// Command load embeds an engine as a stranger would, and compares every byte.
package main
