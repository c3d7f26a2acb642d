// Runs the tests of a copy of the suite against a cache, and prints their results as JSON: `node run.mjs SUITE URL`.
//
// A test that came too late or too soon says "retry"; on a loaded machine some do. It is run again, twice at most.

import path from 'node:path'
import { createRequire } from 'node:module'
import { pathToFileURL } from 'node:url'

const [suite, base] = [path.resolve(process.argv[2]), process.argv[3]]
const load = file => import(pathToFileURL(path.join(suite, file)))
const { makeCacheTest, testResults } = await load('client/test.mjs')
const config = await load('client/config.mjs')
const { default: tests } = await load('tests/index.mjs')
const fetch = createRequire(path.join(suite, 'package.json'))('node-fetch')

config.setFetch(fetch)
config.setBaseUrl(base)
config.setUseBrowserCache(false)

const CHUNK = 100
let left = tests.flatMap(set => set.tests).filter(test => !test.browser_only)
for (let round = 0; round < 3 && left.length > 0; round++) {
  for (let at = 0; at < left.length; at += CHUNK) {
    const these = left.slice(at, at + CHUNK)
    these.forEach(test => delete testResults[test.id])
    await Promise.all(these.map(makeCacheTest))
  }
  left = left.filter(test => Array.isArray(testResults[test.id]) && testResults[test.id][1] === 'retry')
}
console.log(JSON.stringify(testResults, null, 1))
process.exit(0)
