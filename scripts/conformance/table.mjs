// Prints how many tests of each kind passed: `node table.mjs SUITE [-v] NAME=RESULTS.json...`, and below what the suite
// brings along of other proxies. A test that could not be set up, or that depends on one that did not pass, did not.

import fs from 'node:fs'
import path from 'node:path'
import { pathToFileURL } from 'node:url'

const [suite, ...rest] = process.argv.slice(2)
const isVerbose = rest[0] === '-v'
const own = (isVerbose ? rest.slice(1) : rest).map(argument => {
  const at = argument.lastIndexOf('=')
  return { name: argument.slice(0, at), file: argument.slice(at + 1), isOwn: true }
})
const load = async file => (await import(pathToFileURL(path.resolve(suite, file)))).default
const tests = (await load('tests/index.mjs')).flatMap(set => set.tests.map(test => ({ ...test, set: set.id })))
const known = new Map(tests.filter(test => !test.browser_only).map(test => [test.id, test]))
const others = (await load('results/index.mjs')).filter(other => other.type !== 'browser').map(other => {
  return { name: `${other.name} ${other.version ?? ''}`.trim(), file: path.join(suite, 'results', other.file) }
})

const passes = (results, id) => {
  const test = known.get(id)
  return results[id] === true && (test?.depends_on ?? []).every(on => passes(results, on))
}

const kinds = ['required', 'optimal', 'check']
const rows = [...own, ...others].map(({ name, file, isOwn }) => {
  const results = JSON.parse(fs.readFileSync(file))
  const counts = kinds.map(kind => {
    const all = [...known.values()].filter(test => (test.kind ?? 'required') === kind)
    return [all.filter(test => passes(results, test.id)).length, all.length]
  })
  if (isVerbose && isOwn) {
    console.log(`${name}: not passed`)
    for (const [id, test] of known) {
      if (!passes(results, id)) {
        console.log(`  ${(test.kind ?? 'required').padEnd(9)} ${test.set.padEnd(16)} ${id.padEnd(50)} ${results[id]?.[1] ?? ''}`)
      }
    }
  }
  return { name, counts }
})

console.log('| cache | required | optimal | of the checks, yes |\n|---|---|---|---|')
for (const { name, counts } of rows) {
  console.log(`| ${name} | ${counts.map(([passed, all]) => `${passed}/${all}`).join(' | ')} |`)
}
