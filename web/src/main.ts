import './style.css';

import { mount } from 'svelte';

import App from './app.svelte';
import { ReadReport } from './report';
import ReportView from './report_view.svelte';

const target = document.getElementById('app')!;
const report = ReadReport();
if (report) mount(ReportView, { target, props: { report } });
else mount(App, { target });
